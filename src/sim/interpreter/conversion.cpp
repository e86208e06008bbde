// SPDX-License-Identifier: Apache-2.0
// cvt between integers and floating point numbers of all sizes.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/selection.hpp"
#include "sim/interpreter/short_floats.hpp"

namespace cuvmm::sim {
namespace {

// variant: bits 0-2 rounding to a whole number (0 none, 1 nearest, 2 zero, 3 down, 4 up), bit 3
// saturation, bit 4 rounding toward zero in a float, bit 5 negative results become zero.
constexpr std::uint8_t whole_mask = 7;
constexpr std::uint8_t saturates = 8;
constexpr std::uint8_t toward_zero = 16;
constexpr std::uint8_t clears_negative = 32;

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
  // NaN as on a card: zero from f32, the lowest s32 from f64 (measured); the other types are
  // assumed.
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
  // A NaN that is narrowed keeps the upper bits of its payload (measured).
  if constexpr (sizeof(To) == 4 && !std::is_same_v<From, double>) {
    if (result != result) result = std::bit_cast<float>(0x7fffffffU);
  }
  return result;
}

template <class To>
To narrowed(double value, unsigned variant) {
  if ((variant & saturates) != 0) value = value > 0 ? (value < 1 ? value : 1) : 0;
  if ((variant & clears_negative) != 0 && value < 0) value = 0;
  return to_short_float<To>(value, (variant & toward_zero) != 0 ? ShortRounding::TowardZero
                                                                : ShortRounding::ToNearestEven);
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
    return narrowed<Half>(static_cast<double>(value), variant);
  } else if constexpr (std::is_same_v<To, BrainFloat>) {
    return narrowed<BrainFloat>(static_cast<double>(value), variant);
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
    return static_cast<std::uint64_t>(value);  // sign-extended, for wider registers
  }
}

// Registers may be wider than their types.
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

// cvt.rn.f16x2.f32 d, a, b: a becomes the upper half.
template <class To>
void run_packed_conversion(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<std::uint32_t>(instruction.d);
  const auto* upper = warp.lanes_of<float>(instruction.a);
  const auto* lower = warp.lanes_of<float>(instruction.b);
  each_lane(lanes, [&](unsigned lane) {
    const std::uint32_t high = converted<To>(upper[lane], instruction.variant).stored;
    const std::uint32_t low = converted<To>(lower[lane], instruction.variant).stored;
    d[lane] = high << 16 | low;
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
  const bool is_packed = to == PtxType::F16x2 || to == PtxType::BF16x2;
  if ((is_short || is_packed) && (rounding.take("rm") || rounding.take("rp"))) return {};
  if ((is_short || is_packed) && modifiers.take("relu")) variant |= clears_negative;
  if (is_packed) {
    if (from != PtxType::F32) return {};
    return {.execute = to == PtxType::F16x2 ? &run_packed_conversion<Half>
                                            : &run_packed_conversion<BrainFloat>,
            .types = {to, from, from},
            .float_mode = mode,
            .variant = variant};
  }
  return {.execute = conversion(to, from),
          .types = {to, from},
          .float_mode = mode,
          .variant = variant,
          .converts = true};
}

}  // namespace cuvmm::sim
