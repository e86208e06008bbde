// SPDX-License-Identifier: Apache-2.0
#include "replay/policy.hpp"

namespace cuvmm::replay {

Outcome play(const ReplayTrace& trace, Policy& policy) {
  Outcome outcome{.completed = true};
  for (const ReplayEvent& event : trace.events) {
    const auto served =
        event.action == Action::Allocate ? policy.allocate(event) : policy.release(event);
    if (!served) {
      outcome.completed = false;
      outcome.refusal = served.error();
      break;
    }
    ++outcome.events;
  }
  outcome.counters = policy.counters();
  return outcome;
}

}  // namespace cuvmm::replay
