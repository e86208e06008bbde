// SPDX-License-Identifier: Apache-2.0
// Warnings about lanes that have waited too long.
#include <algorithm>

#include "base/log.hpp"
#include "sched/issuer.hpp"

namespace cuvmm {
namespace {

const char* name_of_first(const Lane& lane, const Operation* first) {
  return first == nullptr || lane.is_empty() ? "nothing" : info(first->request.call).symbol;
}

}  // namespace

void Issuer::warn_of_long_waits(std::uint64_t now) {
  const auto longest =
      static_cast<std::uint64_t>(std::chrono::nanoseconds{settings_.watchdog}.count());
  for (const Waiting& waiting : waiting_) {
    LaneState& state = *waiting.state;
    const Operation& first = *waiting.first;
    // After a stall, what it held up has waited for long too, but goes on.
    const std::uint64_t waited = now - std::min(now, std::max(first.submitted_at, state.issued_at));
    if (waited < longest) continue;
    if (state.warned_of == first.number) continue;
    state.warned_of = first.number;
    const double seconds = static_cast<double>(waited) / 1e9;
    const auto missing =
        std::find_if(first.after.begin(), first.after.end(),
                     [](const QueuePosition& position) { return !position.is_issued(); });
    const char* client = state.client().name().c_str();
    const char* call = info(first.request.call).symbol;
    if (missing != first.after.end()) {
      Lane& other = *missing->lane;
      CUVMM_LOG(Warning,
                "scheduler: the lane of client '%s' on device %d has waited %.1f s with %s, for "
                "the lane of client '%s', which is at %s",
                client, device_, seconds, call, other.client().name().c_str(),
                other.device() == device_ ? name_of_first(other, other.first()) : "another device");
    } else {
      CUVMM_LOG(Warning,
                "scheduler: the lane of client '%s' on device %d has waited %.1f s with %s, for "
                "%u operations in flight",
                client, device_, seconds, call, in_flight_.operations + callers_.load());
    }
  }
}

}  // namespace cuvmm
