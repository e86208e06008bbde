// SPDX-License-Identifier: Apache-2.0
// The card that models are based on: one H200, driver 580.159. The simulated driver uses the same
// measurements for its calls.
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::replay {

inline constexpr Size measured_card_memory = round_down(141'000'000'000, usual_granule);

enum class CardCall : std::uint8_t { Allocate, Free, Create, MapAndAccess, Unmap, Release };

// Interpolates linearly between measured sizes; beyond the last one, scales in proportion.
double microseconds_of(CardCall call, Size bytes);

}  // namespace cuvmm::replay
