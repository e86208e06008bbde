// SPDX-License-Identifier: Apache-2.0
// Clients that share memory or events are members of one group while both live.
#include "policy_world.hpp"
#include "time_world.hpp"

namespace cuvmm::test {
namespace {

class JoinedClients : public ::testing::Test {
 public:
  void join(ClientId one, ClientId other) { world.tell(ClientsJoined{one, other}); }
  const std::string& group_of(ClientId client) const {
    return world.policy.books().find_client(client)->group;
  }
  PolicyWorld world;
};

TEST_F(JoinedClients, GetAndLoseTurnsTogether) {
  const ClientId a0 = world.come();
  const ClientId a1 = world.come();
  const ClientId other = world.come();
  ASSERT_TRUE(world.lease(a0, 60, card));
  ASSERT_TRUE(world.lease(a1, 60, other_card));
  join(a1, a0);
  const RequestId request = world.ask(other, 60, card);
  EXPECT_EQ(world.request(a0).step, ReclaimStep::Pause);
  EXPECT_EQ(world.request(a1).step, ReclaimStep::Pause);
  world.apply(world.request(a1));
  world.apply(world.request(a0));
  EXPECT_TRUE(world.is_granted(request));
  world.ask(a0, 60, card);
  world.after(PolicyTimes{}.shortest_quantum);
  EXPECT_TRUE(world.has_turn(a0));
  EXPECT_TRUE(world.has_turn(a1));
  EXPECT_FALSE(world.has_turn(other));
}

TEST_F(JoinedClients, AreNotPausedForEachOther) {
  const ClientId a0 = world.come();
  const ClientId a1 = world.come();
  ASSERT_TRUE(world.lease(a0, 100));
  join(a0, a1);
  const RequestId request = world.ask(a1, 10);
  world.after(PolicyTimes{}.reports_within);
  ASSERT_NE(world.refusal(request), nullptr);
  EXPECT_EQ(world.refusal(request)->why, RefusalReason::BeyondCapacity);
}

TEST_F(JoinedClients, BringTheirGroupsWithThem) {
  const ClientId a0 = world.come(terms(0, 0, "a"));
  const ClientId a1 = world.come(terms(0, 0, "a"));
  const ClientId b0 = world.come(terms(0, 0, "b"));
  const ClientId b1 = world.come(terms(0, 0, "b"));
  const ClientId other = world.come();
  join(b1, a1);
  for (const ClientId member : {a0, a1, b0}) EXPECT_EQ(group_of(member), group_of(b1));
  EXPECT_NE(group_of(other), group_of(b1));
  const ClientId late = world.come(terms(0, 0, "b"));
  EXPECT_EQ(group_of(late), group_of(a0));
}

TEST_F(JoinedClients, AreSeparateAgainOnceNothingTiesThem) {
  const ClientId first = world.come();
  const ClientId server = world.come();
  const ClientId second_client = world.come();
  join(first, server);
  join(server, second_client);
  ASSERT_EQ(group_of(first), group_of(second_client));
  world.tell(ClientLeft{server});
  EXPECT_NE(group_of(first), group_of(second_client));
}

TEST_F(JoinedClients, StayTogetherIfTheyShareTheMemoryOfOneThatHasLeft) {
  const ClientId first = world.come();
  const ClientId server = world.come();
  const ClientId second_client = world.come();
  join(first, server);
  join(server, second_client);
  join(first, second_client);
  world.tell(ClientLeft{server});
  EXPECT_EQ(group_of(first), group_of(second_client));
}

TEST_F(JoinedClients, DoNotTakeTheNameOfAGroupWithThem) {
  const ClientId outsider = world.come();
  const ClientId member = world.come(terms(0, 0, "a"));
  join(outsider, member);
  world.tell(ClientLeft{member});
  const ClientId late = world.come(terms(0, 0, "a"));
  EXPECT_NE(group_of(late), group_of(outsider));
}

// Otherwise the group would hold a turn at some of its places only.
TEST_F(JoinedClients, LoseTheTurnThatOneOfThemHas) {
  const ClientId holder = world.come();
  const ClientId asker = world.come();
  const ClientId partner = world.come();
  ASSERT_TRUE(world.lease(holder, 80, card));
  ASSERT_TRUE(world.lease(partner, 10, other_card));
  const RequestId request = world.ask(asker, 60, card);
  ASSERT_TRUE(world.has_turn(asker));
  world.apply(world.request(holder));
  ASSERT_TRUE(world.is_granted(request));
  join(partner, asker);
  EXPECT_FALSE(world.has_turn(asker));
  EXPECT_EQ(world.all<TurnEnded>().back().client, asker);
  EXPECT_EQ(world.leased(asker), 60 * GiB) << "and no memory";
  const RequestId more = world.ask(holder, 80, card);
  EXPECT_TRUE(world.has_turn(holder));
  for (const ClientId member : {asker, partner}) {
    for (const ReclaimRequested& asked : world.requests(member)) world.apply(asked);
  }
  EXPECT_TRUE(world.is_granted(more));
}

TEST_F(JoinedClients, LeaveTheTurnOfAnotherGroupAlone) {
  const ClientId holder = world.come();
  const ClientId asker = world.come();
  const ClientId a0 = world.come();
  const ClientId a1 = world.come();
  ASSERT_TRUE(world.lease(holder, 80));
  world.ask(asker, 60);
  ASSERT_TRUE(world.has_turn(asker));
  join(a0, a1);
  EXPECT_TRUE(world.has_turn(asker));
  EXPECT_TRUE(world.all<TurnEnded>().empty());
}

TEST_F(JoinedClients, AreNoneIfOneIsUnknown) {
  const ClientId known = world.come();
  join(known, 77);
  join(78, known);
  join(known, known);
  EXPECT_TRUE(world.all<GroupChanged>().empty());
}

TEST(Turns, OfAMergedGroupCountTheTimeOfBothParts) {
  TurnTable table{{}};
  table.start({{"a", {card}, 1}}, 0);
  table.end("a", 1, 9000);
  table.start({{"b", {card}, 1}}, 9000);
  table.end("b", 1, 10'000);
  table.inherit("a", "b");
  table.forget("a");
  table.start({{"c", {card}, 1}}, 10'000);
  table.end("c", 1, 12'000);
  EXPECT_EQ(table.start({{"b", {card}, 1}, {"c", {card}, 1}}, 12'000).at(0), "c");
}

double in_seconds(Microseconds time) {
  return static_cast<double>(time) / second;
}

TEST(TimeShares, OfClientsThatJoinAreThoseOfAGroup) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId a0 = world.add({});
  const ClientId a1 = world.add({});
  const ClientId other = world.add({});
  const auto measure = [&] {
    world.run(second);
    world.reset();
    world.run(6 * second);
    return in_seconds(world.device_time(other));
  };
  EXPECT_NEAR(measure(), 2, 0.2);
  world.join({a0, a1}, "shared");
  EXPECT_NEAR(measure(), 3, 0.2);
  EXPECT_EQ(world.policy.grant_of(a0, 0), world.policy.grant_of(a1, 0));
  world.join({a1}, "alone");
  EXPECT_NEAR(measure(), 2, 0.2);
}

}  // namespace
}  // namespace cuvmm::test
