// SPDX-License-Identifier: Apache-2.0
// Shares and hand-overs of a device's time in random histories.
#include <numeric>
#include <random>

#include "support/scale.hpp"
#include "time_world.hpp"

namespace cuvmm::test {
namespace {

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
