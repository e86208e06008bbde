// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/short_floats.hpp"

#include <bit>
#include <cmath>

namespace cuvmm::sim {
namespace {

struct ShortFormat {
  int fraction_bits;
  int bias;
};
constexpr ShortFormat half_format{10, 15};
constexpr ShortFormat brain_float_format{7, 127};
constexpr std::uint16_t not_a_number = 0x7fff;

std::uint16_t encode(double value, const ShortFormat& format, ShortRounding rounding) {
  if (std::isnan(value)) return not_a_number;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const std::uint32_t infinity = 0x7fffU & ~((1U << format.fraction_bits) - 1);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent -= 1;
  if (exponent < 1 - format.bias) exponent = 1 - format.bias;  // subnormal
  const double steps = std::ldexp(magnitude, format.fraction_bits - exponent);
  double whole = std::floor(steps);
  const double rest = steps - whole;
  const bool rounds_up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
  if (rounding == ShortRounding::ToNearestEven && rounds_up) whole += 1;
  const double normal = std::ldexp(1.0, format.fraction_bits);
  if (whole < normal) return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(whole));
  if (exponent > format.bias) {
    return static_cast<std::uint16_t>(
        sign | (rounding == ShortRounding::TowardZero ? infinity - 1 : infinity));
  }
  // A carry out of the fraction raises the exponent, up to that of infinity.
  const std::uint32_t bits =
      (static_cast<std::uint32_t>(exponent + format.bias) << format.fraction_bits) +
      static_cast<std::uint32_t>(whole - normal);
  return static_cast<std::uint16_t>(sign | bits);
}

}  // namespace

float value_of(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.stored & 0x8000) << 16;
  const std::uint32_t exponent = (half.stored >> 10) & 0x1f;
  const std::uint32_t fraction = half.stored & 0x3ff;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(fraction != 0 ? 0x7fffffffU : sign | 0x7f800000U);
  }
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float value_of(BrainFloat value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.stored) << 16);
}

template <>
Half to_short_float(double value, ShortRounding rounding) {
  return {encode(value, half_format, rounding)};
}

template <>
BrainFloat to_short_float(double value, ShortRounding rounding) {
  return {encode(value, brain_float_format, rounding)};
}

}  // namespace cuvmm::sim
