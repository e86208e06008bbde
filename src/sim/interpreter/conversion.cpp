// SPDX-License-Identifier: Apache-2.0
// cvt: between all integers and floating point numbers.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

// As stored in registers.
struct Half {
  std::uint16_t stored;
};
struct BrainFloat {
  std::uint16_t stored;
};

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

// To nearest, ties to even, or toward zero.
Half to_half(double value, bool toward_zero) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude != magnitude) return {0x7fff};
  if (std::isinf(magnitude)) return {static_cast<std::uint16_t>(sign | 0x7c00)};
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  if (exponent < -13) exponent = -13;
  const double steps = std::ldexp(magnitude, 11 - exponent);  // a half has 11 bits
  double whole = std::floor(steps);
  const double rest = steps - whole;
  if (!toward_zero && (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0))) whole += 1;
  const double rounded = std::ldexp(whole, exponent - 11);
  if (rounded >= 65536) {
    return {static_cast<std::uint16_t>(sign | (toward_zero ? 0x7bff : 0x7c00))};
  }
  if (rounded < std::ldexp(1.0, -14)) {
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(rounded, 24)))};
  }
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<std::uint32_t>(std::ldexp(rounded, 11 - exponent)) & 0x3ff;
  return {static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent + 14) << 10 |
                                     fraction)};
}
BrainFloat to_brain_float(float value, bool toward_zero) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return {0x7fff};
  if (toward_zero) return {static_cast<std::uint16_t>(bits >> 16)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// variant: bits 0-2 rounding to a whole number (0 none, 1 nearest, 2 zero, 3 down, 4 up), bit 3
// saturation, bit 4 rounding toward zero in a float, bit 5 subnormal operands and results are zero.
constexpr std::uint8_t whole_mask = 7;
constexpr std::uint8_t saturates = 8;
constexpr std::uint8_t toward_zero = 16;

template <class T>
T rounded(T value, unsigned how) {
  switch (how) {
    case 1:
      return std::nearbyint(value);
    case 2:
      return std::trunc(value);
    case 3:
      return std::floor(value);
    case 4:
      return std::ceil(value);
    default:
      return value;
  }
}

template <class To, class From>
To to_integer(From value, unsigned variant) {
  // As a card answers: of an f32 zero, of an f64 the lowest s32 (measured); the rest is assumed.
  constexpr bool is_long = sizeof(To) == 8;
  constexpr bool is_lowest = is_long || std::is_same_v<From, double>;
  if (value != value) {
    return is_lowest ? static_cast<To>(std::uint64_t{1} << (sizeof(To) * 8 - 1)) : To{0};
  }
  const From whole = rounded(value, (variant & whole_mask) == 0 ? 2 : variant & whole_mask);
  const From beyond = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (whole >= beyond) return std::numeric_limits<To>::max();
  if (std::is_signed_v<To> ? whole < -beyond : whole < 0) return std::numeric_limits<To>::min();
  return static_cast<To>(whole);
}

template <class T>
__int128 widest(T value) {
  return static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(value);
}

template <class To, class From>
To between_integers(From value, bool saturate) {
  if (!saturate) return static_cast<To>(value);
  const auto wide = widest(value);
  const auto least = widest(std::numeric_limits<To>::min());
  const auto most = widest(std::numeric_limits<To>::max());
  return static_cast<To>(wide < least ? least : (wide > most ? most : wide));
}

template <class T>
constexpr bool is_short_float = std::is_same_v<T, Half> || std::is_same_v<T, BrainFloat>;

template <class To, class From>
To to_float(From value, unsigned variant) {
  To result{};
  if constexpr (std::is_floating_point_v<From>) {
    result = static_cast<To>(rounded(value, variant & whole_mask));
  } else {
    result = static_cast<To>(value);
  }
  if ((variant & saturates) != 0) result = result > 0 ? (result < 1 ? result : To{1}) : To{0};
  // What is narrowed keeps the upper bits of what made it no number (measured).
  if constexpr (sizeof(To) == 4 && !std::is_same_v<From, double>) {
    if (result != result) result = std::bit_cast<float>(0x7fffffffU);
  }
  return result;
}

template <class To, class From>
To converted(From value, unsigned variant) {
  if constexpr (is_short_float<From>) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else {
      return converted<To>(value_of(value), variant);
    }
  } else if constexpr (std::is_same_v<To, Half>) {
    return to_half(static_cast<double>(value), (variant & toward_zero) != 0);
  } else if constexpr (std::is_same_v<To, BrainFloat>) {
    return to_brain_float(static_cast<float>(value), (variant & toward_zero) != 0);
  } else if constexpr (std::is_floating_point_v<To>) {
    return to_float<To>(value, variant);
  } else if constexpr (std::is_floating_point_v<From>) {
    return to_integer<To>(value, variant);
  } else {
    return between_integers<To>(value, (variant & saturates) != 0);
  }
}

template <class T>
std::uint64_t stored_bits(T value) {
  if constexpr (is_short_float<T>) {
    return value.stored;
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::uint64_t>(value);  // with its sign, for wider registers
  }
}

// Registers may be wider than the types.
template <class To, class From>
void run_conversion(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t stored = warp.read(instruction.a, instruction.width_a, lane);
    From value{};
    std::memcpy(&value, &stored, sizeof value);
    warp.write(instruction.d, instruction.width_d, lane,
               stored_bits(converted<To>(value, instruction.variant)));
  });
}

template <class To>
Execute from_type(PtxType from) {
  switch (from) {
    case PtxType::U8:
    case PtxType::B8:
      return &run_conversion<To, std::uint8_t>;
    case PtxType::U16:
    case PtxType::B16:
      return &run_conversion<To, std::uint16_t>;
    case PtxType::U32:
    case PtxType::B32:
      return &run_conversion<To, std::uint32_t>;
    case PtxType::U64:
    case PtxType::B64:
      return &run_conversion<To, std::uint64_t>;
    case PtxType::S8:
      return &run_conversion<To, std::int8_t>;
    case PtxType::S16:
      return &run_conversion<To, std::int16_t>;
    case PtxType::S32:
      return &run_conversion<To, std::int32_t>;
    case PtxType::S64:
      return &run_conversion<To, std::int64_t>;
    case PtxType::F16:
      return &run_conversion<To, Half>;
    case PtxType::BF16:
      return &run_conversion<To, BrainFloat>;
    case PtxType::F32:
      return &run_conversion<To, float>;
    case PtxType::F64:
      return &run_conversion<To, double>;
    default:
      return nullptr;
  }
}

Execute conversion(PtxType to, PtxType from) {
  switch (to) {
    case PtxType::U8:
    case PtxType::B8:
      return from_type<std::uint8_t>(from);
    case PtxType::U16:
    case PtxType::B16:
      return from_type<std::uint16_t>(from);
    case PtxType::U32:
    case PtxType::B32:
      return from_type<std::uint32_t>(from);
    case PtxType::U64:
    case PtxType::B64:
      return from_type<std::uint64_t>(from);
    case PtxType::S8:
      return from_type<std::int8_t>(from);
    case PtxType::S16:
      return from_type<std::int16_t>(from);
    case PtxType::S32:
      return from_type<std::int32_t>(from);
    case PtxType::S64:
      return from_type<std::int64_t>(from);
    case PtxType::F16:
      return from_type<Half>(from);
    case PtxType::BF16:
      return from_type<BrainFloat>(from);
    case PtxType::F32:
      return from_type<float>(from);
    case PtxType::F64:
      return from_type<double>(from);
    default:
      return nullptr;
  }
}

}  // namespace

Choice choose_conversion(std::string_view opcode, Modifiers& modifiers) {
  if (opcode != "cvt") return {};
  std::uint8_t variant = 0;
  constexpr std::string_view wholes[] = {"rni", "rzi", "rmi", "rpi"};
  for (std::size_t i = 0; i < std::size(wholes); ++i) {
    if (modifiers.take(wholes[i])) variant = static_cast<std::uint8_t>(i + 1);
  }
  if (modifiers.take("sat")) variant |= saturates;
  Modifiers before = modifiers;
  if (before.take("rz")) variant |= toward_zero;
  const std::uint32_t mode = take_float_mode(modifiers);
  const PtxType to = modifiers.take_type();
  const PtxType from = modifiers.take_type();
  const bool is_short = to == PtxType::F16 || to == PtxType::BF16;
  Modifiers rounding = before;
  if (is_short && (rounding.take("rm") || rounding.take("rp"))) return {};
  return {.execute = conversion(to, from),
          .types = {to, from},
          .float_mode = mode,
          .variant = variant,
          .converts = true};
}

}  // namespace cuvmm::sim
