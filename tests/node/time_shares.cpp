// SPDX-License-Identifier: Apache-2.0
// Which client gets how much of a device's time, and when.
#include <numeric>
#include <random>

#include "support/scale.hpp"
#include "time_world.hpp"

namespace cuvmm::test {
namespace {

constexpr Microseconds ms = 1'000;
constexpr Microseconds second = 1'000'000;

TimeSettings by(TimeRule rule) {
  TimeSettings settings;
  settings.rule = rule;
  return settings;
}

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

// 1 to 16 programs with random terms, some of which are killed or stopped: programs that always
// have work get their shares, and none waits forever.
TEST(RandomTimeHistories, GiveSharesByWeightAndStarveNobody) {
  PRINT_SEED_ON_FAILURE();
  for (std::uint64_t history = 0; history < scaled(20); ++history) {
    std::mt19937_64 random{seed() * 977 + history};
    const auto chance = [&](std::uint64_t below) { return random() % below; };
    TimeWorld world{by(TimeRule::Share)};
    std::vector<ClientId> steady;
    std::vector<ClientId> others;
    std::vector<std::uint32_t> weights;
    const std::size_t count = 1 + chance(16);
    for (std::size_t i = 0; i < count; ++i) {
      TimeProgram program{.kernel = 50 + chance(40) * 50};
      program.terms.weight = 1 + static_cast<std::uint32_t>(chance(4));
      if (chance(3) == 0 && i != 0) {
        program.burst_every = 5 * ms + chance(100) * ms;
        program.kernels_of_burst = 1 + static_cast<unsigned>(chance(20));
        others.push_back(world.add(program));
      } else {
        weights.push_back(program.terms.weight);
        steady.push_back(world.add(program));
      }
    }
    for (int i = 0; i < 5; ++i) {
      world.run(300 * ms);
      if (!others.empty()) {
        const std::size_t which = chance(others.size());
        if (chance(2) == 0) {
          world.kill(others[which]);
          others.erase(others.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
          world.stop(others[which]);
        }
      }
    }
    world.reset();
    world.run(5 * second);
    Microseconds all = 0;
    for (const ClientId id : steady) all += world.device_time(id);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < steady.size(); ++i) {
      const double got =
          static_cast<double>(world.device_time(steady[i])) / static_cast<double>(all);
      EXPECT_NEAR(got, weights[i] / sum, 0.03) << history << ": " << i;
      EXPECT_LT(world.longest_wait(steady[i]), 1'200 * ms) << history << ": " << i;
    }
  }
}

// A party that waits while the device is free gets it, every time: a million hand-overs between
// programs under all rules, any of which may be killed, stopped, or idle for a while.
TEST(RandomTimeHistories, LoseNoHandover) {
  PRINT_SEED_ON_FAILURE();
  const std::uint64_t wanted = scaled(100'000);
  std::uint64_t seen = 0;
  for (std::uint64_t history = 0; seen < wanted; ++history) {
    std::mt19937_64 random{seed() * 1009 + history};
    const auto chance = [&](std::uint64_t below) { return random() % below; };
    TimeSettings settings = by(static_cast<TimeRule>(1 + chance(3)));
    settings.remembered = 1'000 * second;
    TimePolicy policy{settings};
    constexpr PlaceId devices = 2;
    std::map<ClientId, std::map<PlaceId, bool>> clients;
    ClientId last = 0;
    Microseconds now = 1;
    Microseconds ungranted_since[devices] = {1, 1};
    for (int step = 0; step < 20'000; ++step) {
      now += chance(1'000);
      if (clients.size() < 2 || (clients.size() < 16 && chance(500) == 0)) {
        TimeTerms terms{.weight = 1 + static_cast<std::uint32_t>(chance(10)),
                        .priority = static_cast<int>(chance(3)),
                        .cap = chance(4) == 0 ? 50U : 100U,
                        .group = chance(4) == 0 ? "g" : ""};
        policy.came(++last, terms, now);
        for (PlaceId device = 0; device < devices; ++device) {
          if (device != 0 && chance(2) == 0) continue;
          policy.uses(last, device, now);
          clients[last][device] = false;
        }
        continue;
      }
      auto one = std::next(clients.begin(), static_cast<std::ptrdiff_t>(chance(clients.size())));
      if (chance(1'000) == 0) {
        policy.left(one->first, now);
        clients.erase(one);
        continue;
      }
      const auto grant_before = [&] {
        std::map<std::pair<ClientId, PlaceId>, TimeGrant> grants;
        for (const auto& [id, has] : clients) {
          for (const auto& [device, wants] : has)
            grants[{id, device}] = policy.grant_of(id, device);
        }
        return grants;
      }();
      auto place =
          std::next(one->second.begin(), static_cast<std::ptrdiff_t>(chance(one->second.size())));
      if (chance(4) == 0) {
        place->second = !place->second || chance(3) != 0;
        policy.wants(one->first, place->first, place->second, now);
      }
      if (const auto wake = policy.next_wake(); wake && *wake <= now) policy.passed(now);
      for (const ClientId id : policy.undrained()) {
        if (chance(3) == 0) continue;
        for (const auto& [device, wants] : clients[id]) policy.drained(id, device, now);
      }
      bool waits[devices] = {};
      bool is_granted[devices] = {};
      for (const auto& [id, has] : clients) {
        for (const auto& [device, wants] : has) {
          const TimeGrant grant = policy.grant_of(id, device);
          waits[device] |= wants && grant == TimeGrant::None;
          is_granted[device] |= wants && grant != TimeGrant::None;
          const bool gained = grant != TimeGrant::None && grant_before.contains({id, device}) &&
                              grant_before.at({id, device}) == TimeGrant::None;
          if (gained) ++seen;
        }
      }
      for (PlaceId device = 0; device < devices; ++device) {
        if (is_granted[device] || !waits[device]) ungranted_since[device] = now;
        ASSERT_LT(now - ungranted_since[device], 1'300 * ms)
            << "history " << history << ", step " << step << ": nobody has device " << device
            << ", which somebody waits for";
      }
    }
  }
}

}  // namespace
}  // namespace cuvmm::test
