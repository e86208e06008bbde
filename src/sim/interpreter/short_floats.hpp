// SPDX-License-Identifier: Apache-2.0
// Floating point numbers of 16 bits: f16 and bf16.
#pragma once

#include <cstdint>

namespace cuvmm::sim {

struct Half {
  std::uint16_t stored;
};
struct BrainFloat {
  std::uint16_t stored;
};

float value_of(Half half);
float value_of(BrainFloat value);

enum class ShortRounding : std::uint8_t { ToNearestEven, TowardZero };

// Rounded once. Every NaN becomes 0x7fff, as on a card.
template <class T>
T to_short_float(double value, ShortRounding rounding = ShortRounding::ToNearestEven);
template <>
Half to_short_float(double value, ShortRounding rounding);
template <>
BrainFloat to_short_float(double value, ShortRounding rounding);

}  // namespace cuvmm::sim
