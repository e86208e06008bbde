// SPDX-License-Identifier: Apache-2.0
// Which client gets how much of a device's time, and when.
#include <algorithm>
#include <map>
#include <vector>

#include "time_world.hpp"

namespace cuvmm::test {
namespace {

TEST(TimeShares, FollowTheWeightsWhateverTheKernelsLengths) {
  for (const std::uint32_t part : {10U, 25U, 50U}) {
    for (const Microseconds kernel : {Microseconds{50}, 2 * ms}) {
      TimeWorld world{by(TimeRule::Share)};
      const ClientId less = world.add({.terms = {.weight = part}, .kernel = 2 * ms + 50 - kernel});
      const ClientId more = world.add({.terms = {.weight = 100 - part}, .kernel = kernel});
      world.run(second);
      world.reset();
      world.run(5 * second);
      EXPECT_NEAR(world.share(less), part / 100.0, 0.03) << part << " " << kernel;
      EXPECT_NEAR(world.device_time(less) + world.device_time(more), 5.0 * second, 0.05 * second)
          << "the device is kept busy";
    }
  }
}

// A graph may outlast the quantum of its client. The other client then has several quanta in a row,
// between which it keeps the device.
TEST(TimeShares, FollowTheWeightsOfLongGraphsBesideShortOnes) {
  for (const std::uint32_t part : {10U, 25U, 50U}) {
    TimeWorld world{by(TimeRule::Share)};
    const ClientId less =
        world.add({.terms = {.weight = part}, .kernel = 16 * ms, .reacts_after = 500});
    const ClientId more =
        world.add({.terms = {.weight = 100 - part}, .kernel = 400, .reacts_after = 500});
    world.run(second);
    world.reset();
    const std::uint64_t before = world.hand_overs();
    world.run(20 * second);
    EXPECT_NEAR(world.share(less), part / 100.0, 0.03) << part;
    const Microseconds graphs = world.device_time(less) / (16 * ms);
    EXPECT_LE(world.hand_overs() - before, 2 * graphs + 2) << part << ": one each way";
    EXPECT_GT(world.device_time(less) + world.device_time(more), 18.75 * second) << part;
  }
}

TEST(TimeShares, GoUnusedToTheOtherClient) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId busy = world.add({.terms = {.weight = 1}});
  world.add({.terms = {.weight = 99}, .burst_every = 50 * ms, .kernels_of_burst = 20});
  world.run(second);
  world.reset();
  world.run(5 * second);
  EXPECT_GT(world.device_time(busy), 4.8 * second);
}

TEST(TimeShares, AreNotRepaidAfterAnAbsence) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId always = world.add({});
  const ClientId late = world.add({.burst_every = 20 * second, .kernels_of_burst = 40'000});
  world.run(second);
  world.set_terms(late, {});
  world.run(20 * second);  // its burst has ended, and another begins
  world.reset();
  world.run(300 * ms);
  EXPECT_GT(world.device_time(always), 100 * ms);
}

TEST(TimeShares, NewWeightsCountAtOnce) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId first = world.add({});
  world.add({});
  world.run(second);
  world.set_terms(first, {.weight = 3});
  world.reset();
  world.run(2 * second);
  EXPECT_NEAR(world.share(first), 0.75, 0.03);
}

TEST(TimeCap, IsHeldOverEverySecondEvenAlone) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId capped = world.add({.terms = {.cap = 30}, .kernel = 5 * ms});
  world.run(second);
  for (int i = 0; i < 20; ++i) {
    world.reset();
    world.run(second);
    EXPECT_NEAR(world.device_time(capped) / 1e6, 0.30, 0.02);
  }
}

TEST(TimeCap, LeavesTheRestToABusyNeighbour) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId capped = world.add({.terms = {.cap = 30}, .kernel = ms});
  const ClientId other = world.add({.kernel = ms});
  world.run(second);
  world.reset();
  world.run(10 * second);
  EXPECT_NEAR(world.device_time(capped) / 1e7, 0.30, 0.02);
  EXPECT_GT(world.device_time(other) / 1e7, 0.66);
}

TEST(TimeCap, HoldsWithoutAnyRuleAsWell) {
  TimeWorld world{by(TimeRule::Off)};
  const ClientId capped = world.add({.terms = {.cap = 50}});
  world.run(10 * second);
  EXPECT_NEAR(world.device_time(capped) / 1e7, 0.50, 0.02);
}

// Its share of each second from now on, after one in which it may use up what it had saved.
void expect_share_of_each_second(TimeWorld& world, ClientId client, double share) {
  world.run(second);
  for (int i = 0; i < 10; ++i) {
    world.reset();
    world.run(second);
    EXPECT_NEAR(world.device_time(client) / 1e6, share, 0.02) << i;
  }
}

// A client whose neighbour has no work, but may soon: it holds the device for seconds.
ClientId add_long_holder(TimeWorld& world, const TimeTerms& terms) {
  world.add({.kernel = 200, .burst_every = 8 * second, .kernels_of_burst = 5});
  const ClientId holder = world.add({.terms = terms, .kernel = 200});
  world.run(7'500 * ms);
  return holder;
}

TEST(TimeCap, CountsFromWhenItIsLowered) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId holder = add_long_holder(world, {});
  world.set_terms(holder, {.cap = 5});
  expect_share_of_each_second(world, holder, 0.05);
}

TEST(TimeCap, OfAClientThatComesIntoARunningGroupCountsFromThen) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId holder = add_long_holder(world, {.group = "job"});
  world.add(
      {.terms = {.cap = 5, .group = "job"}, .burst_every = 1'000 * second, .kernels_of_burst = 1});
  expect_share_of_each_second(world, holder, 0.05);
}

TEST(TimeCap, OfAClientThatJoinsARunningGroupCountsFromThen) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId capped =
      world.add({.terms = {.cap = 5}, .burst_every = 1'000 * second, .kernels_of_burst = 1});
  const ClientId holder = add_long_holder(world, {.group = "job"});
  world.join({capped}, "job");
  expect_share_of_each_second(world, holder, 0.05);
}

TEST(TimePriority, TheForegroundWaitsForNoMoreThanWhatIsInFlight) {
  TimeWorld world{by(TimeRule::Priority)};
  const ClientId front = world.add(
      {.terms = {.priority = 5}, .kernel = 30, .burst_every = 10 * ms, .kernels_of_burst = 20});
  const ClientId back = world.add({.kernel = 50});
  world.run(second);
  world.reset();
  world.run(5 * second);
  std::vector<Microseconds> bursts = world.burst_times(front);
  ASSERT_GT(bursts.size(), 400u);
  std::sort(bursts.begin(), bursts.end());
  const Microseconds alone = 20 * 30;
  EXPECT_LT(bursts[bursts.size() * 99 / 100], alone + 300);
  EXPECT_GT(world.device_time(back), 0.85 * (5 * second - world.device_time(front)));
}

TEST(TimePriority, TheBackgroundLetsTheForegroundGoFirstUnlessItHasWaitedTooLong) {
  TimePolicy policy{by(TimeRule::Priority)};
  policy.came(1, {.priority = 5}, 1);
  policy.came(2, {}, 1);
  for (const ClientId id : {1, 2}) {
    policy.uses(id, 0, 1);
    policy.wants(id, 0, true, 1);
  }
  const auto holds = [](const TimePolicy::Decisions& told, bool yields) {
    return std::any_of(told.begin(), told.end(), [&](const TimeDecision& one) {
      return one.client == 2 && one.grant == TimeGrant::Held && one.yields == yields;
    });
  };
  EXPECT_EQ(policy.grant_of(2, 0), TimeGrant::None);
  EXPECT_TRUE(holds(policy.wants(1, 0, false, 1 * ms), true));
  policy.wants(1, 0, true, 2 * ms);
  policy.drained(2, 0, 2 * ms);
  EXPECT_EQ(policy.grant_of(2, 0), TimeGrant::None);
  EXPECT_TRUE(holds(policy.passed(1'010 * ms), false));
  EXPECT_EQ(policy.above(2, 0), std::vector<ClientId>{1});
  EXPECT_TRUE(policy.above(1, 0).empty());
  policy.terms_changed(1, {.priority = 5, .cap = 50}, 1'011 * ms);
  EXPECT_TRUE(policy.above(2, 0).empty()) << "it may have to wait itself";
}

// The window of the background after this many bursts of the foreground.
Microseconds window_after(Microseconds burst, int bursts) {
  TimePolicy policy{by(TimeRule::Priority)};
  policy.came(1, {.priority = 5}, 1);
  policy.came(2, {}, 1);
  for (const ClientId id : {1, 2}) policy.uses(id, 0, 1);
  policy.wants(2, 0, true, 1);
  Microseconds window = 0;
  for (Microseconds now = ms; bursts-- > 0; now += second) {
    policy.wants(1, 0, true, now);
    policy.drained(2, 0, now);
    for (const TimeDecision& told : policy.wants(1, 0, false, now + burst + wants_after_work)) {
      if (told.client == 2 && told.grant == TimeGrant::Held) window = told.window;
    }
  }
  return window;
}

TEST(TimePriority, TheBackgroundHasAnEighthOfTheForegroundsBurstInFlight) {
  EXPECT_EQ(window_after(600, 3), 100u);
  EXPECT_EQ(window_after(4 * ms, 3), 500u);
  EXPECT_EQ(window_after(100 * ms, 3), ms) << "no more than anybody else";
}

TEST(TimePriority, TheShortestBurstsOfAllAboveCount) {
  TimePolicy policy{by(TimeRule::Priority)};
  for (const ClientId id : {1, 2, 3}) {
    policy.came(id, {.priority = id == 3 ? 0 : 5}, 1);
    policy.uses(id, 0, 1);
  }
  policy.wants(3, 0, true, 1);
  Microseconds window = 0;
  const auto burst = [&](ClientId id, Microseconds begin, Microseconds length) {
    policy.wants(id, 0, true, begin);
    policy.drained(3, 0, begin);
    for (const TimeDecision& told : policy.wants(id, 0, false, begin + length + wants_after_work)) {
      if (told.client == 3 && told.grant == TimeGrant::Held) window = told.window;
    }
  };
  burst(1, second, 8 * ms);
  EXPECT_EQ(window, ms);
  burst(2, 2 * second, 2 * ms);
  EXPECT_EQ(window, 250u);
}

TEST(TimePriority, TheBackgroundIsNotStarvedByABusyForeground) {
  TimeWorld world{by(TimeRule::Priority)};
  const ClientId front = world.add({.terms = {.priority = 5}, .kernel = ms});
  const ClientId back = world.add({.kernel = ms});
  world.run(20 * second);
  EXPECT_GT(world.device_time(back), 20 * ms);
  EXPECT_LT(world.longest_wait(back), 1'100 * ms);
  EXPECT_GT(world.share(front), 0.95);
}

TEST(TimeGroups, GetAllTheirDevicesTogether) {
  TimeWorld world{by(TimeRule::Share)};
  // Two ranks whose kernels run on both cards at once, as one program with two devices.
  const ClientId ranks = world.add({.terms = {.group = "job"}, .kernel = ms, .devices = {0, 1}});
  const ClientId left = world.add({.kernel = 2 * ms});
  const ClientId right = world.add({.kernel = ms, .devices = {1}});
  world.run(second);
  world.reset();
  world.run(10 * second);
  EXPECT_NEAR(world.device_time(ranks) / 1e7, 0.5, 0.08);
  EXPECT_GT(world.device_time(left) / 1e7, 0.4);
  EXPECT_GT(world.device_time(right) / 1e7, 0.4);
}

TEST(TimeGroups, MembersInDifferentProcessesHoldTheirGrantsAtTheSameTime) {
  TimePolicy policy{by(TimeRule::Share)};
  policy.came(1, {.group = "job"}, 1);
  policy.came(2, {.group = "job"}, 1);
  policy.came(3, {}, 1);
  policy.uses(1, 0, 1);
  policy.uses(2, 1, 1);
  policy.uses(3, 1, 1);
  policy.wants(3, 1, true, 2);
  policy.wants(1, 0, true, 3);
  policy.wants(2, 1, true, 3);
  EXPECT_EQ(policy.grant_of(2, 1), TimeGrant::None) << "the other one's quantum has just begun";
  for (Microseconds now = 4; now < 100 * ms; now += 100) {
    policy.passed(now);
    if (policy.grant_of(3, 1) == TimeGrant::None) policy.drained(3, 1, now);
    if (policy.grant_of(2, 1) == TimeGrant::Held) break;
  }
  EXPECT_EQ(policy.grant_of(2, 1), TimeGrant::Held);
  EXPECT_NE(policy.grant_of(1, 0), TimeGrant::None);
  EXPECT_EQ(policy.grant_of(3, 1), TimeGrant::None);
}

// The time of each client so far, by what an observer of the policy sees.
std::map<ClientId, TimeUse> uses_of(const TimeWorld& world, const std::vector<ClientId>& clients) {
  std::map<ClientId, TimeUse> uses;
  for (const ClientId id : clients) uses[id] = world.policy.use_of(id);
  return uses;
}

TEST(TimeGroups, KeepWhatEachMemberUsedBeforeItJoined) {
  TimeWorld world{by(TimeRule::Share)};
  const std::vector<ClientId> clients{world.add({.kernel = ms}), world.add({.kernel = ms}),
                                      world.add({.kernel = ms})};
  world.set_terms(clients[0], {.weight = 8});
  world.run(3 * second);
  const auto before = uses_of(world, clients);
  for (const char* group : {"job", "other job", ""}) {
    world.join({clients[0]}, group);
    world.join({clients[1]}, group);
    for (const auto& [id, use] : uses_of(world, clients)) {
      EXPECT_EQ(use.held, before.at(id).held) << id << " in " << group;
      EXPECT_EQ(use.waited, before.at(id).waited) << id << " in " << group;
    }
  }
}

TEST(TimeGroups, CountTheSameTimeForAllMembersFromThenOn) {
  TimeWorld world{by(TimeRule::Share)};
  const std::vector<ClientId> clients{world.add({.kernel = ms}), world.add({.kernel = ms}),
                                      world.add({.kernel = ms})};
  world.run(3 * second);
  world.join({clients[0], clients[1]}, "job");
  const auto before = uses_of(world, clients);
  world.run(3 * second);
  const auto after = uses_of(world, clients);
  const auto held = [&](ClientId id) { return after.at(id).held - before.at(id).held; };
  const auto waited = [&](ClientId id) { return after.at(id).waited - before.at(id).waited; };
  EXPECT_EQ(held(clients[0]), held(clients[1]));
  EXPECT_EQ(waited(clients[0]), waited(clients[1]));
  EXPECT_NEAR(held(clients[0]) / 3e6, 0.5, 0.03);
  EXPECT_NEAR(waited(clients[2]) / 3e6, 0.5, 0.03);
}

TEST(TimeGrants, AreNotNeededByALoneClient) {
  TimePolicy policy{by(TimeRule::Share)};
  policy.came(1, {}, 1);
  policy.uses(1, 0, 1);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::Open);
  policy.came(2, {}, 2);
  policy.uses(2, 0, 2);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::Open) << "the second has not asked for anything yet";
  EXPECT_EQ(policy.grant_of(2, 0), TimeGrant::None);
  policy.wants(2, 0, true, 3);
  EXPECT_NE(policy.grant_of(2, 0), TimeGrant::None);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::None) << "now it has to ask";
  policy.wants(1, 0, true, 4);
  policy.wants(2, 0, false, 5);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::Held) << "the other may come back soon";
  policy.passed(11 * second);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::Open);
}

TEST(TimeGrants, OfAStoppedHolderEndAfterItsQuantumAndWhatIsInFlight) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId stopped = world.add({.kernel = ms});
  const ClientId other = world.add({.kernel = ms});
  world.run(second);
  world.stop(stopped);
  world.reset();
  world.run(5 * second);
  EXPECT_LT(world.longest_wait(other), 30 * ms);
  EXPECT_GT(world.device_time(other), 4.9 * second);
  EXPECT_FALSE(world.policy.is_suspended(0)) << "it is stopped, not stuck";
  world.go_on(stopped);
  world.reset();
  world.run(2 * second);
  EXPECT_NEAR(world.share(stopped), 0.5, 0.03);
}

// While it runs, nothing takes its grant away at the end of a quantum.
void expect_no_wait_for_a_stopped_favourite(TimeRule rule) {
  TimeWorld world{by(rule)};
  const ClientId favourite = world.add({.terms = {.priority = 5}, .kernel = ms});
  const ClientId other = world.add({.kernel = ms});
  world.give_memory_turn(favourite, true);
  world.run(300 * ms);
  world.stop(favourite);
  world.reset();
  world.run(5 * second);
  EXPECT_LT(world.longest_wait(other), 200 * ms);
  EXPECT_GT(world.device_time(other), 4.8 * second);
  EXPECT_FALSE(world.policy.is_suspended(0)) << "it is stopped, not stuck";
  world.go_on(favourite);
  world.reset();
  world.run(2 * second);
  EXPECT_GT(world.share(favourite), 0.95);
  EXPECT_FALSE(world.policy.is_suspended(0));
}

TEST(TimeGrants, OfAStoppedForegroundEnd) {
  expect_no_wait_for_a_stopped_favourite(TimeRule::Priority);
}

TEST(TimeGrants, OfAStoppedHolderOfAMemoryTurnEnd) {
  expect_no_wait_for_a_stopped_favourite(TimeRule::Turns);
}

TEST(TimeGrants, PassOnOnlyWhenWorkThatOutlastsItsEstimateHasEnded) {
  TimePolicy policy{by(TimeRule::Share)};
  for (const ClientId id : {1, 2}) {
    policy.came(id, {}, 1);
    policy.uses(id, 0, 1);
    policy.wants(id, 0, true, 2);
  }
  Microseconds now = 3;
  while (policy.undrained().empty()) policy.passed(now += 100);
  const ClientId holder = policy.undrained().front();
  const ClientId next = 3 - holder;
  const Microseconds ends_at = now + 60 * ms;
  for (; now < ends_at; now += 100) {
    policy.in_flight_until(holder, now + 2 * ms);  // it moves the end on, since it still sees work
    policy.passed(now);
    ASSERT_EQ(policy.grant_of(next, 0), TimeGrant::None);
  }
  policy.passed(now + 2 * ms + policy.settings().drain_grace);  // and no longer does
  EXPECT_EQ(policy.grant_of(next, 0), TimeGrant::Held);
}

TEST(TimeGrants, EndWithTheirQuantumHoweverOftenTermsChange) {
  TimePolicy policy{by(TimeRule::Share)};
  for (const ClientId id : {1, 2}) {
    policy.came(id, {}, 1);
    policy.uses(id, 0, 1);
    policy.wants(id, 0, true, 2);
  }
  const ClientId holder = policy.grant_of(1, 0) == TimeGrant::Held ? 1 : 2;
  for (Microseconds now = 3; now < policy.settings().longest_quantum; now += 100) {
    policy.terms_changed(holder, {}, now);
  }
  EXPECT_EQ(policy.grant_of(holder, 0), TimeGrant::None);
}

TEST(TimeGrants, OfAKilledHolderEndAtOnce) {
  TimeWorld world{by(TimeRule::Share)};
  const ClientId killed = world.add({.kernel = ms});
  const ClientId other = world.add({.kernel = ms});
  world.run(second);
  world.kill(killed);
  world.reset();
  world.run(second);
  EXPECT_LT(world.longest_wait(other), 3 * ms);
  EXPECT_EQ(world.policy.grant_of(other, 0), TimeGrant::Open);
}

TEST(TimeGrants, AreSuspendedOnADeviceWhoseWorkOutlastsThem) {
  TimeSettings settings = by(TimeRule::Share);
  TimePolicy policy{settings};
  for (const ClientId id : {1, 2}) {
    policy.came(id, {}, 1);
    policy.uses(id, 0, 1);
    policy.wants(id, 0, true, 2);
  }
  EXPECT_FALSE(policy.is_suspended(0));
  // Work launched before anyone competed may stay in flight for a long time.
  Microseconds now = 3;
  const auto let_pass = [&](Microseconds until, bool report) {
    for (; now < until && !policy.is_suspended(0); now += 100) {
      policy.passed(now);
      for (const ClientId id : policy.undrained()) {
        if (report) policy.drained(id, 0, now);
      }
    }
  };
  let_pass(4 * second, true);
  EXPECT_FALSE(policy.is_suspended(0));
  // From now on neither client reports the end of its work.
  let_pass(5 * second, false);
  EXPECT_TRUE(policy.is_suspended(0));
  EXPECT_LT(now, 4 * second + settings.longest_quantum + settings.outlasts + 20 * ms);
  EXPECT_EQ(policy.grant_of(1, 0), TimeGrant::Held);
  EXPECT_EQ(policy.grant_of(2, 0), TimeGrant::Held);
  policy.passed(now + settings.suspended_for);
  EXPECT_FALSE(policy.is_suspended(0));
  EXPECT_NE(policy.grant_of(1, 0), policy.grant_of(2, 0));
}

TEST(TimeTurns, AMemoryTurnIncludesTheDevice) {
  TimeWorld world{by(TimeRule::Turns)};
  const ClientId first = world.add({.kernel = ms});
  const ClientId second_one = world.add({.kernel = ms});
  world.run(second);
  world.give_memory_turn(first, true);
  world.reset();
  world.run(900 * ms);
  EXPECT_GT(world.share(first), 0.95);
  world.give_memory_turn(first, false);
  world.reset();
  world.run(second);
  EXPECT_NEAR(world.share(second_one), 0.5, 0.05);
}

}  // namespace
}  // namespace cuvmm::test
