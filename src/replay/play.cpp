// SPDX-License-Identifier: Apache-2.0
#include "replay/policy.hpp"

namespace cuvmm::replay {

namespace {
constexpr std::size_t events_a_report = 4'096;
}

Outcome play(const ReplayTrace& trace, Policy& policy,
             const std::function<void(double)>& progress) {
  Outcome outcome{.completed = true};
  for (const ReplayEvent& event : trace.events) {
    const auto served =
        event.action == Action::Allocate ? policy.allocate(event) : policy.release(event);
    if (!served) {
      outcome.completed = false;
      outcome.refusal = served.error();
      break;
    }
    if (++outcome.events % events_a_report == 0 && progress) {
      progress(static_cast<double>(outcome.events) / static_cast<double>(trace.events.size()));
    }
  }
  outcome.counters = policy.counters();
  return outcome;
}

}  // namespace cuvmm::replay
