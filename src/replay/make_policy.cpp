// SPDX-License-Identifier: Apache-2.0
#include "replay/make_policy.hpp"

#include <algorithm>

#include "replay/arena_policy.hpp"
#include "replay/caching_model.hpp"
#include "replay/driver_policy.hpp"
#include "replay/expandable_model.hpp"

namespace cuvmm::replay {

Size memory_of_card(const ReplayTrace& trace, Size limit) {
  constexpr Size most = 64 * TiB;  // the simulated driver's addresses are bounded
  const Size for_peak =
      round_up(saturating_sum(trace.live_peak_bytes, trace.live_peak_bytes), usual_granule);
  const Size card = std::max(measured_card_memory, for_peak);
  return limit == unlimited ? card : std::max(card, round_up(std::min(limit, most), usual_granule));
}

Result<std::unique_ptr<Policy>> make_policy(const PolicySettings& settings,
                                            const ReplayTrace& trace) {
  const Size card = memory_of_card(trace, settings.limit);
  const Size limit = std::min(settings.limit, card);
  switch (settings.name) {
    case PolicyName::Caching:
      return {std::make_unique<CachingModel>(limit)};
    case PolicyName::Expandable:
      return {std::make_unique<ExpandableModel>(
          limit, card,
          settings.chunk != 0 ? settings.chunk : ExpandableModel::usual_large_granule)};
    case PolicyName::Driver:
      return {std::make_unique<DriverPolicy>(
          TRY(Simulation::start(settings.sim_driver, round_down(limit, usual_granule))))};
    case PolicyName::Arena:
      return ArenaPolicy::create(TRY(Simulation::start(settings.sim_driver, card)),
                                 {.limit = settings.limit,
                                  .chunk = settings.chunk,
                                  .grow = settings.grow,
                                  .compact = settings.compact});
  }
  return Error::invalid("make policy", "there is none of that name");
}

}  // namespace cuvmm::replay
