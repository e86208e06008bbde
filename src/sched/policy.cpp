// SPDX-License-Identifier: Apache-2.0
#include "sched/policy.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

// Far fewer than the driver accepts before it blocks the caller.
constexpr std::uint32_t deepest = 256;

std::int64_t aged(const Candidate& candidate, std::uint64_t now) {
  const std::uint64_t waited = now > candidate.waiting_since ? now - candidate.waiting_since : 0;
  return candidate.priority + static_cast<std::int64_t>(waited / aging_step_ns);
}

bool goes_before(Schedule policy, const Candidate& one, const Candidate& other, std::uint64_t now) {
  switch (policy) {
    case Schedule::RoundRobin:
      if (one.last_turn != other.last_turn) return one.last_turn < other.last_turn;
      break;
    case Schedule::Priority:
      if (aged(one, now) != aged(other, now)) return aged(one, now) > aged(other, now);
      break;
    case Schedule::Fair:
      if (one.share_used != other.share_used) return one.share_used < other.share_used;
      break;
    case Schedule::Fifo:
    case Schedule::Off:
      break;
  }
  return one.order < other.order;
}

}  // namespace

std::size_t choose(Schedule policy, std::span<const Candidate> candidates, std::uint64_t now) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (goes_before(policy, candidates[i], candidates[best], now)) best = i;
  }
  return best;
}

// Under `priority`, one operation of the lower client may be in flight, since it cannot be
// recalled. The other policies allow two, which keeps the device busy until a completion is
// noticed.
Pace pace_of(Schedule policy, Others others, Duration window) {
  const auto most_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds{window}.count());
  if (policy == Schedule::Priority && others.any_higher) {
    return {.most_ns = most_ns, .most_operations = deepest, .least_operations = 1, .of_all = true};
  }
  const bool takes_turns = policy == Schedule::RoundRobin || policy == Schedule::Fair;
  if (takes_turns && others.any_active) {
    return {.most_ns = most_ns, .most_operations = deepest, .least_operations = 2, .of_all = true};
  }
  return {.most_ns = ~std::uint64_t{0}, .most_operations = deepest, .least_operations = 1};
}

}  // namespace cuvmm
