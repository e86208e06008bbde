// SPDX-License-Identifier: Apache-2.0
// Members of a group stop together: none moves its memory while another's work is in flight.
#include "node/group_pauses.hpp"

#include <map>

#include "daemon/leased_world.hpp"

namespace cuvmm::test {
namespace {

using namespace node;

// Two members, 1 and 2, whose pauses have been demanded.
class PausesOfAGroup : public ::testing::Test {
 public:
  PausesOfAGroup() {
    pauses.demanded("g", 1, 11);
    pauses.demanded("g", 2, 12);
  }
  // The latest order to a member since the last call.
  std::optional<GroupStep> told(ClientId client) {
    const auto found = orders.find(client);
    if (found == orders.end()) return {};
    const GroupStep step = found->second;
    orders.erase(found);
    return step;
  }

  std::map<ClientId, GroupStep> orders;
  GroupPauses pauses{
      [this](ClientId client, const NextGroupStep& next) { orders[client] = next.step; }};
};

TEST_F(PausesOfAGroup, MoveOnceTheWorkOfAllHasEnded) {
  pauses.reported(1, {11, true});
  EXPECT_EQ(told(1), std::nullopt);
  pauses.reported(2, {12, true});
  EXPECT_EQ(told(1), GroupStep::Move);
  EXPECT_EQ(told(2), GroupStep::Move);
}

// The group has changed its name between the end of one pause and the next one's begin.
TEST_F(PausesOfAGroup, EndForAClientThatIsInAnotherGroupsNextPause) {
  pauses.demanded("another", 1, 21);
  pauses.demanded("another", 3, 23);
  pauses.ended(1, 11, ReclaimEnd::Applied);
  pauses.reported(2, {12, true});
  EXPECT_EQ(told(2), GroupStep::Move);
  pauses.reported(1, {21, true});
  EXPECT_EQ(told(1), std::nullopt);
  pauses.reported(3, {23, true});
  EXPECT_EQ(told(1), GroupStep::Move);
  EXPECT_EQ(told(3), GroupStep::Move);
}

TEST_F(PausesOfAGroup, LetTheOtherRunOnWhileAKernelSpinsForIt) {
  pauses.reported(1, {11, true});
  pauses.reported(2, {12, false});
  EXPECT_EQ(told(1), GroupStep::Run);
  EXPECT_EQ(told(2), std::nullopt) << "it keeps its calls held";
  pauses.reported(2, {12, true});
  EXPECT_EQ(told(1), GroupStep::Hold);
  EXPECT_EQ(told(2), std::nullopt);
  pauses.reported(1, {11, true});
  EXPECT_EQ(told(1), GroupStep::Move);
  EXPECT_EQ(told(2), GroupStep::Move);
}

TEST_F(PausesOfAGroup, LetAllButOneRunIfAllSpin) {
  pauses.reported(1, {11, false});
  pauses.reported(2, {12, false});
  EXPECT_EQ(told(1), std::nullopt);
  EXPECT_EQ(told(2), GroupStep::Run);
  pauses.reported(1, {11, true});
  EXPECT_EQ(told(2), GroupStep::Hold);
}

TEST_F(PausesOfAGroup, IgnoreAReportThatCrossedTheOrderToRun) {
  pauses.reported(1, {11, true});
  pauses.reported(2, {12, false});
  pauses.reported(1, {11, true});
  orders.clear();
  pauses.reported(2, {12, true});
  EXPECT_EQ(told(1), GroupStep::Hold);
}

TEST_F(PausesOfAGroup, IgnoreAReportThatCrossedTheOrderToRunEvenIfTheNextOrderHasGoneOut) {
  pauses.reported(2, {12, false, 0});
  pauses.reported(1, {11, false, 0});
  EXPECT_EQ(told(2), GroupStep::Run);
  pauses.reported(1, {11, true, 0});
  EXPECT_EQ(told(2), GroupStep::Hold);
  pauses.reported(2, {12, true, 0});  // it has heard neither, and lets its calls run next
  EXPECT_EQ(told(1), std::nullopt);
  EXPECT_EQ(told(2), std::nullopt);
  pauses.reported(2, {12, true, 2});
  EXPECT_EQ(told(1), GroupStep::Move);
  EXPECT_EQ(told(2), GroupStep::Move);
}

TEST_F(PausesOfAGroup, DoNotWaitForAMemberThatHasGone) {
  pauses.reported(1, {11, true});
  pauses.ended(2, 12, ReclaimEnd::ClientGone);
  EXPECT_EQ(told(1), GroupStep::Move);
}

// It was stopped, for example, and reports once it has been continued.
TEST_F(PausesOfAGroup, AreOverForAMemberWhoseDemandHasEnded) {
  pauses.reported(1, {11, true});
  pauses.ended(2, 12, ReclaimEnd::Expired);
  EXPECT_EQ(told(1), GroupStep::Over);
  pauses.reported(2, {12, true});
  EXPECT_EQ(told(2), GroupStep::Over);
  pauses.reported(3, {13, true});
  EXPECT_EQ(told(3), GroupStep::Over) << "there was no such demand";
}

TEST_F(PausesOfAGroup, MoveNobodyIfOneDoesNotPause) {
  pauses.reported(1, {11, true});
  pauses.ended(2, 12, ReclaimEnd::Refused);
  EXPECT_EQ(told(1), GroupStep::Over);
}

TEST_F(PausesOfAGroup, LetAMemberWhoseWorkGoesOnRunIfOneDoesNotPause) {
  pauses.reported(1, {11, false});
  pauses.ended(2, 12, ReclaimEnd::Refused);
  EXPECT_EQ(told(1), GroupStep::Over);
}

TEST(LeasedBudgets, PauseWithTheirGroupOnlyWhenAllStandStill) {
  LeasedWorld world;
  ASSERT_NO_FATAL_FAILURE(world.begin_holding(8 * MiB));
  world.service.say(PauseWithGroup{5});
  world.service.say(ReclaimDemand{.revision = 5,
                                  .place = a_device,
                                  .step = ReclaimStep::Pause,
                                  .bytes = 8 * MiB,
                                  .within = 20'000'000});
  EXPECT_TRUE(world.service.hear<StandsStill>().has_ended_work);
  EXPECT_FALSE(world.tenant.paused);
  world.tenant.busy = true;
  world.service.say(NextGroupStep{5, GroupStep::Run});
  ::usleep(20'000);
  EXPECT_EQ(world.tenant.pauses, 1) << "its calls run";
  world.service.say(NextGroupStep{5, GroupStep::Hold});
  EXPECT_FALSE(world.service.hear<StandsStill>().has_ended_work) << "it spins for another";
  world.tenant.busy = false;
  EXPECT_TRUE(world.service.hear<StandsStill>().has_ended_work);
  world.service.say(NextGroupStep{5, GroupStep::Move});
  const auto answer = world.service.hear<ReclaimAnswer>();
  EXPECT_EQ(answer.outcome, ReclaimOutcome::Applied);
  EXPECT_EQ(answer.returned, 8 * MiB);
  EXPECT_TRUE(world.tenant.paused);
}

void demand_pause_with_group(LeasedWorld& world, Revision revision, std::uint64_t within_us) {
  world.service.say(PauseWithGroup{revision});
  world.service.say(ReclaimDemand{.revision = revision,
                                  .place = a_device,
                                  .step = ReclaimStep::Pause,
                                  .bytes = 8 * MiB,
                                  .within = within_us});
}

TEST(LeasedBudgets, PauseWithTheirGroupAfterAPauseThatWasCalledOff) {
  LeasedWorld world;
  ASSERT_NO_FATAL_FAILURE(world.begin_holding(8 * MiB));
  demand_pause_with_group(world, 5, 300'000);
  EXPECT_TRUE(world.service.hear<StandsStill>().has_ended_work);
  world.service.say(NextGroupStep{5, GroupStep::Run});
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Deferred);
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Refused);
  demand_pause_with_group(world, 6, 20'000'000);
  EXPECT_EQ(world.service.hear<StandsStill>().revision, 6U);
  world.service.say(NextGroupStep{6, GroupStep::Move});
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Applied);
}

// Neither the program's calls nor the service's next demand have to wait for its deadline.
TEST(LeasedBudgets, DoNotPauseWithTheirGroupOnceThePauseIsOver) {
  LeasedWorld world;
  ASSERT_NO_FATAL_FAILURE(world.begin_holding(8 * MiB));
  demand_pause_with_group(world, 5, 60'000'000);
  world.service.hear<StandsStill>();
  const std::uint64_t began = now_us();
  world.service.say(NextGroupStep{5, GroupStep::Over});
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Refused);
  EXPECT_LT(now_us() - began, 20'000'000U);
  EXPECT_FALSE(world.tenant.paused);
  demand_pause_with_group(world, 6, 60'000'000);
  EXPECT_EQ(world.service.hear<StandsStill>().revision, 6U);
  world.service.say(NextGroupStep{6, GroupStep::Move});
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Applied);
}

TEST(LeasedBudgets, PauseWithTheirGroupWhateverAnEarlierServiceSaid) {
  LeasedWorld world;
  world.begin();
  world.service.say(NextGroupStep{5, GroupStep::Run});
  world.service.hear<node::UseReport>();
  world.service.hang_up();
  world.service.accept();
  world.service.greet();
  demand_pause_with_group(world, 5, 20'000'000);
  EXPECT_EQ(world.service.hear<StandsStill>().revision, 5U);
  world.service.say(NextGroupStep{5, GroupStep::Move});
  EXPECT_EQ(world.service.hear<ReclaimAnswer>().outcome, ReclaimOutcome::Applied);
}

// A client of the service in group "job" that holds memory and pauses with its group.
RawClient member(const NodeService& service, const std::string& name) {
  RawClient client{service.socket()};
  client.set_device(device_of(service.socket()));
  client.say(Greeting{.name = name, .group = "job", .places = 1});
  client.say(HeldAlready{client.device()});
  EXPECT_TRUE(client.hear<Accepted>());
  client.say(PausesWithGroup{});
  EXPECT_TRUE(client.lease(100 * MiB));
  return client;
}

TEST_F(NodeService, PausesAGroupTogetherAndTellsItsMembersWhenToMove) {
  start();
  RawClient first = member(*this, "first");
  RawClient second = member(*this, "second");
  RawClient asker = RawClient::at(*this, "asker", 200 * MiB);
  ASSERT_TRUE(asker.hear<Accepted>());
  asker.say(LeaseAsk{.request = 1, .place = asker.device(), .bytes = 200 * MiB});
  const auto of_first = first.hear<PauseWithGroup>();
  const auto of_second = second.hear<PauseWithGroup>();
  ASSERT_TRUE(of_first && of_second);
  EXPECT_EQ(first.hear<ReclaimDemand>()->revision, of_first->revision);
  first.say(StandsStill{of_first->revision, true});
  EXPECT_FALSE(first.hear<NextGroupStep>(200)) << "the other has not answered";
  second.say(StandsStill{of_second->revision, true});
  EXPECT_EQ(first.hear<NextGroupStep>()->step, GroupStep::Move);
  EXPECT_EQ(second.hear<NextGroupStep>()->step, GroupStep::Move);
}

TEST_F(NodeService, GroupsOnlyThoseWhoNameTheSameGroupOrNone) {
  start();
  RawClient none{socket()};
  none.say(Greeting{.name = "none", .group = "none"});
  ASSERT_TRUE(none.hear<Accepted>());
  RawClient observer{socket()};
  observer.say(StateAsk{});
  const auto state = observer.hear<ClientState>();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->group, "") << "a group of its own";
}

}  // namespace
}  // namespace cuvmm::test
