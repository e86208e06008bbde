// SPDX-License-Identifier: Apache-2.0
// The card that models speak of: one H200, driver 580.159. The simulated driver charges its own
// calls by the same measurements.
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::replay {

inline constexpr Size measured_card_memory = round_down(141'000'000'000, usual_granule);

enum class CardCall : std::uint8_t { Allocate, Free, Create, MapAndAccess, Unmap, Release };

// Between measured sizes on a straight line; past the last one in proportion.
double microseconds_of(CardCall call, Size bytes);

}  // namespace cuvmm::replay
