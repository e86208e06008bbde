// SPDX-License-Identifier: Apache-2.0
// Memory that leaves one program while another gets it back: a lease that shrinks and grows in
// parts.
#include <atomic>

#include "daemon/leased_world.hpp"

namespace cuvmm::test {
namespace {

class LeasesInParts : public ::testing::Test {
 protected:
  static constexpr Size all = 64 * MiB;

  LeasesInParts() {
    world.begin();
    EXPECT_TRUE(world.commit(all, [&] { world.service.grant_next(); }));
    world.tenant.held = world.tenant.comes_back = all;
  }

  void demand_pause() {
    world.service.say(node::ReclaimDemand{3, a_device, node::ReclaimStep::Pause, all, 20'000'000});
  }
  void pause() {
    demand_pause();
    world.service.hear<node::ReclaimAnswer>();
  }
  // The request for what the program needs to resume.
  node::LeaseAsk hold_a_call() {
    world.tenant.held_calls = true;
    takes_parts = world.service.hear<node::TakesParts>().request;
    return world.service.hear<node::LeaseAsk>();
  }

  LeasedWorld world;
  node::RequestId takes_parts = 0;
};

TEST_F(LeasesInParts, APauseReturnsWhatItHasReleasedWhileItGoesOn) {
  world.tenant.gives_half_first = true;
  demand_pause();
  EXPECT_EQ(world.service.hear<node::LeaseReturn>().bytes, all / 2);
  const auto answer = world.service.hear<node::ReclaimAnswer>();
  EXPECT_EQ(answer.outcome, node::ReclaimOutcome::Applied);
  EXPECT_EQ(answer.returned, all / 2);
}

// A call that was under way has taken it after the demand, and it left with the rest.
TEST_F(LeasesInParts, AReturningProgramAsksForWhatItTookAsThePauseBegan) {
  const Size more = 8 * MiB;
  world.budget.add_lease(more);
  world.tenant.takes_while_called = more;
  world.tenant.comes_back = all + more;
  pause();
  EXPECT_EQ(hold_a_call().bytes, all + more);
}

// Each attempt takes memory that others could have meanwhile.
TEST_F(LeasesInParts, AProgramThatCannotComeBackTriesLessAndLessOften) {
  pause();
  world.service.hang_up();  // the driver decides now, and has no room
  world.tenant.cannot_resume = true;
  const std::uint64_t began = now_us();
  world.tenant.held_calls = true;
  ASSERT_TRUE(comes_true([&] { return world.tenant.resumes >= 1; }));
  ::sleep(1);
  const int tried = world.tenant.resumes;
  EXPECT_LE(tried, 6 + static_cast<int>((now_us() - began) / 250'000));
  world.tenant.cannot_resume = false;
  EXPECT_TRUE(comes_true([&] { return !world.tenant.is_paused(); }));
}

TEST_F(LeasesInParts, AReturningProgramFillsEachPartAsItComes) {
  pause();
  const auto ask = hold_a_call();
  EXPECT_EQ(ask.request, takes_parts);
  EXPECT_EQ(ask.bytes, all);
  world.service.say(node::LeasePart{ask.request, all / 2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  EXPECT_EQ(world.budget.committed_bytes(), all / 2);
  EXPECT_TRUE(world.tenant.is_paused());
  world.service.say(node::LeaseGrant{ask.request});
  EXPECT_TRUE(comes_true([&] { return world.tenant.resumes == 1; }));
  EXPECT_EQ(world.budget.committed_bytes(), all);
  EXPECT_EQ(world.tenant.leaves_again, 0);
}

// One batch is what a lease usually grows by.
TEST_F(LeasesInParts, LessThanABatchIsNotWorthACopy) {
  pause();
  const auto ask = hold_a_call();
  world.service.say(node::LeasePart{ask.request, batch - 2 * MiB});
  world.service.say(node::LeasePart{ask.request, 2 * MiB});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  EXPECT_EQ(world.budget.committed_bytes(), batch);
}

TEST_F(LeasesInParts, AnotherPauseTakesWhatWasBackAlready) {
  pause();
  const auto ask = hold_a_call();
  world.service.say(node::LeasePart{ask.request, all / 2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  demand_pause();
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, all / 2);
  EXPECT_EQ(world.tenant.leaves_again, 1);
  EXPECT_EQ(world.tenant.pauses, 1) << "it is paused already";
}

// Others can have it instead.
TEST_F(LeasesInParts, ARefusalOfTheRestFreesWhatWasBackAlready) {
  pause();
  const auto ask = hold_a_call();
  world.service.say(node::LeasePart{ask.request, all / 2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  world.service.say(
      node::LeaseRefusal{.request = ask.request, .why = node::RefusalReason::NotReturned});
  EXPECT_TRUE(comes_true([&] { return world.tenant.leaves_again == 1; }));
  EXPECT_EQ(world.service.hear<node::LeaseAsk>().bytes, all / 2) << "the rest";
  EXPECT_EQ(world.budget.surplus(), all / 2);
}

TEST_F(LeasesInParts, AProgramThatNobodyWaitsForAnyMoreLeavesAgain) {
  pause();
  const auto ask = hold_a_call();
  world.service.say(node::LeasePart{ask.request, all / 2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  world.tenant.held_calls = false;
  EXPECT_TRUE(comes_true([&] { return world.tenant.leaves_again == 1; }));
}

// By `cuvmm resume`, for example.
TEST_F(LeasesInParts, AProgramThatIsResumedOtherwiseCancelsItsRequest) {
  pause();
  const auto ask = hold_a_call();
  world.tenant.paused = false;
  EXPECT_EQ(world.service.hear<node::LeaseCancel>().request, ask.request);
  world.service.say(node::LeaseGrant{ask.request});  // it was on its way
  EXPECT_EQ(world.service.hear<node::LeaseReturn>().bytes, all - batch);
}

// Otherwise a program that the service has paused would come back after a `cuvmm pause`.
TEST_F(LeasesInParts, AProgramThatACommandPausesTooIsLeftToTheCommand) {
  pause();
  const auto ask = hold_a_call();
  world.service.say(node::LeasePart{ask.request, all / 2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.returns_ahead == 1; }));
  world.tenant.paused_by_command = true;
  EXPECT_EQ(world.service.hear<node::LeaseCancel>().request, ask.request);
  EXPECT_EQ(world.tenant.leaves_again, 1);
  world.service.say(node::LeaseGrant{ask.request});  // it was on its way
  EXPECT_TRUE(comes_true([&] { return world.budget.surplus() == all; }));
  ::usleep(50'000);  // it would be tried again every 5 ms
  EXPECT_EQ(world.tenant.resumes, 0);
  EXPECT_EQ(world.tenant.returns_ahead, 1);
}

// Others may have taken what it had released, so it comes back like any paused program.
TEST_F(LeasesInParts, APauseThatFailsAndCannotBeUndoneCountsAsOne) {
  world.tenant.gives_half_first = true;
  world.tenant.fails_when_paused = true;
  demand_pause();
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().outcome, node::ReclaimOutcome::Applied);
  const auto ask = hold_a_call();
  EXPECT_EQ(ask.bytes, all);
  world.service.say(node::LeaseGrant{ask.request});
  EXPECT_TRUE(comes_true([&] { return world.tenant.resumes == 1; }));
  EXPECT_EQ(world.budget.committed_bytes(), all);
}

}  // namespace
}  // namespace cuvmm::test
