// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, bit fields and permutations.
#include <bit>
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

struct BitAnd {
  template <class T>
  static T of(T a, T b) {
    return a & b;
  }
};
struct BitOr {
  template <class T>
  static T of(T a, T b) {
    return a | b;
  }
};
struct BitXor {
  template <class T>
  static T of(T a, T b) {
    return a ^ b;
  }
};
struct BitNot {
  template <class T>
  static T of(T a) {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <class T>
  static T of(T a) {
    return a == 0 ? 1 : 0;
  }
};
struct BitCopy {
  template <class T>
  static T of(T a) {
    return a;
  }
};
struct ShiftLeft {
  template <class T>
  static T of(T a, U32 by) {
    return by >= bits_of<T> ? T{0} : static_cast<T>(a << by);
  }
};
struct ShiftRight {
  template <class T>
  static T of(T a, U32 by) {
    if (by < bits_of<T>) return static_cast<T>(a >> by);
    return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  }
};
struct CountOnes {
  template <class T>
  static U32 of(T a) {
    return static_cast<U32>(std::popcount(a));
  }
};
struct CountLeadingZeros {
  template <class T>
  static U32 of(T a) {
    return static_cast<U32>(std::countl_zero(a));
  }
};
struct BitReverse {
  template <class T>
  static T of(T a) {
    T reversed = 0;
    for (unsigned bit = 0; bit < bits_of<T>; ++bit) {
      reversed = static_cast<T>((reversed << 1) | ((a >> bit) & 1));
    }
    return reversed;
  }
};
template <bool as_shift>
struct FindHighest {
  template <class T>
  static U32 of(T a) {
    using Plain = std::make_unsigned_t<T>;
    auto value = static_cast<Plain>(a);
    if (std::is_signed_v<T> && a < 0) value = static_cast<Plain>(~value);
    if (value == 0) return 0xffffffff;
    const auto zeros = static_cast<U32>(std::countl_zero(value));
    return as_shift ? zeros : bits_of<T> - 1 - zeros;
  }
};
struct ExtractField {
  template <class T>
  static T of(T a, U32 position, U32 length) {
    using Plain = std::make_unsigned_t<T>;
    position &= 0xff;
    length &= 0xff;
    if (length == 0) return 0;
    const auto value = static_cast<Plain>(a);
    const Plain sign = [&]() -> Plain {
      if constexpr (!std::is_signed_v<T>) return 0;
      const U32 top =
          position + length - 1 < bits_of<T> - 1 ? position + length - 1 : bits_of<T> - 1;
      return (value >> top) & 1;
    }();
    Plain field = position >= bits_of<T> ? 0 : static_cast<Plain>(value >> position);
    const U32 valid = position >= bits_of<T> ? 0 : bits_of<T> - position;
    const U32 saved = length < valid ? length : valid;
    if (saved < bits_of<T>) {
      const Plain mask = static_cast<Plain>((Plain{1} << saved) - 1);
      field = static_cast<Plain>(field & mask);
      if (sign != 0) field = static_cast<Plain>(field | ~mask);
    }
    return static_cast<T>(field);
  }
};

template <class T>
void run_insert_field(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<T>(instruction.d);
  const auto* from = warp.lanes_of<T>(instruction.a);
  const auto* into = warp.lanes_of<T>(instruction.b);
  const auto* positions = warp.lanes_of<U32>(instruction.c);
  const auto* lengths = warp.lanes_of<U32>(instruction.e);
  each_lane(lanes, [&](unsigned lane) {
    const U32 position = positions[lane] & 0xff;
    const U32 length = lengths[lane] & 0xff;
    T mask = 0;
    if (position < bits_of<T>) {
      mask = length >= bits_of<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
      mask = static_cast<T>(mask << position);
    }
    const T placed = position < bits_of<T> ? static_cast<T>(from[lane] << position) : T{0};
    d[lane] = static_cast<T>((into[lane] & ~mask) | (placed & mask));
  });
}

void run_lookup(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<U32>(instruction.d);
  const auto* a = warp.lanes_of<U32>(instruction.a);
  const auto* b = warp.lanes_of<U32>(instruction.b);
  const auto* c = warp.lanes_of<U32>(instruction.c);
  const U32* table = warp.lanes_of<U32>(instruction.e);
  each_lane(lanes, [&](unsigned lane) {
    U32 result = 0;
    for (unsigned row = 0; row < 8; ++row) {
      if (((table[lane] >> row) & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a[lane] : ~a[lane]) & ((row & 2) != 0 ? b[lane] : ~b[lane]) &
                ((row & 1) != 0 ? c[lane] : ~c[lane]);
    }
    d[lane] = result;
  });
}

struct Permute {
  static U32 of(U32 a, U32 b, U32 selector) {
    const U64 bytes = (U64{b} << 32) | a;
    U32 result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const U32 choice = (selector >> (4 * i)) & 0xf;
      U32 byte = static_cast<U32>(bytes >> (8 * (choice & 7))) & 0xff;
      if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

template <bool wraps>
struct FunnelLeft {
  static U32 of(U32 low, U32 high, U32 by) {
    const U32 n = wraps ? by & 31 : (by > 32 ? 32 : by);
    return static_cast<U32>(((((U64{high} << 32) | low) << n)) >> 32);
  }
};
template <bool wraps>
struct FunnelRight {
  static U32 of(U32 low, U32 high, U32 by) {
    const U32 n = wraps ? by & 31 : (by > 32 ? 32 : by);
    return static_cast<U32>(((U64{high} << 32) | low) >> n);
  }
};

template <class Function>
void run_on_predicates(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const U32 b = instruction.b == no_operand ? 0 : warp.predicate(instruction.b);
  if constexpr (std::is_same_v<Function, BitNot> || std::is_same_v<Function, BitCopy>) {
    warp.set_predicate(instruction.d, lanes, Function::of(warp.predicate(instruction.a)));
  } else {
    warp.set_predicate(instruction.d, lanes, Function::of(warp.predicate(instruction.a), b));
  }
}

template <class Function>
Choice logic(PtxType type) {
  Execute execute = nullptr;
  switch (size_of(type)) {
    case 0:
      execute = type == PtxType::Pred ? &run_on_predicates<Function> : nullptr;
      break;
    case 2:
      execute = &run_binary<U16, U16, U16, Function>;
      break;
    case 4:
      execute = &run_binary<U32, U32, U32, Function>;
      break;
    case 8:
      execute = &run_binary<U64, U64, U64, Function>;
      break;
    default:
      break;
  }
  return {.execute = execute, .types = {type, type, type}};
}

template <class Function>
Choice unary_logic(PtxType type) {
  Execute execute = nullptr;
  switch (size_of(type)) {
    case 0:
      if constexpr (std::is_same_v<Function, BitNot> || std::is_same_v<Function, BitCopy>) {
        execute = type == PtxType::Pred ? &run_on_predicates<Function> : nullptr;
      }
      break;
    case 2:
      execute = &run_unary<U16, U16, Function>;
      break;
    case 4:
      execute = &run_unary<U32, U32, Function>;
      break;
    case 8:
      execute = &run_unary<U64, U64, Function>;
      break;
    default:
      break;
  }
  return {.execute = execute, .types = {type, type}};
}

template <class Function>
Choice counted(PtxType type) {
  Execute execute = nullptr;
  if (type == PtxType::B32 || type == PtxType::U32) execute = &run_unary<U32, U32, Function>;
  if (type == PtxType::B64 || type == PtxType::U64) execute = &run_unary<U32, U64, Function>;
  if constexpr (!std::is_same_v<Function, CountOnes> &&
                !std::is_same_v<Function, CountLeadingZeros>) {
    if (type == PtxType::S32) execute = &run_unary<U32, std::int32_t, Function>;
    if (type == PtxType::S64) execute = &run_unary<U32, std::int64_t, Function>;
  }
  return {.execute = execute, .types = {PtxType::U32, type}};
}

template <class T, class Function>
Choice shift(PtxType type) {
  return {.execute = &run_binary<T, T, U32, Function>, .types = {type, type, PtxType::U32}};
}

Choice choose_shift(bool left, PtxType type) {
  switch (type) {
    case PtxType::B16:
    case PtxType::U16:
      return left ? shift<U16, ShiftLeft>(type) : shift<U16, ShiftRight>(type);
    case PtxType::B32:
    case PtxType::U32:
      return left ? shift<U32, ShiftLeft>(type) : shift<U32, ShiftRight>(type);
    case PtxType::B64:
    case PtxType::U64:
      return left ? shift<U64, ShiftLeft>(type) : shift<U64, ShiftRight>(type);
    case PtxType::S16:
      return left ? Choice{} : shift<std::int16_t, ShiftRight>(type);
    case PtxType::S32:
      return left ? Choice{} : shift<std::int32_t, ShiftRight>(type);
    case PtxType::S64:
      return left ? Choice{} : shift<std::int64_t, ShiftRight>(type);
    default:
      return {};
  }
}

template <class T>
Choice extract(PtxType type) {
  return {.execute = &run_ternary<T, T, U32, U32, ExtractField>,
          .types = {type, type, PtxType::U32, PtxType::U32}};
}

Choice choose_extract(PtxType type) {
  switch (type) {
    case PtxType::U32:
      return extract<U32>(type);
    case PtxType::U64:
      return extract<U64>(type);
    case PtxType::S32:
      return extract<std::int32_t>(type);
    case PtxType::S64:
      return extract<std::int64_t>(type);
    default:
      return {};
  }
}

Choice choose_funnel(Modifiers& modifiers) {
  const PtxType type = modifiers.take_type();
  const bool left = modifiers.take("l");
  if (!left && !modifiers.take("r")) return {};
  const bool wraps = modifiers.take("wrap");
  if (!wraps && !modifiers.take("clamp")) return {};
  const Execute execute = left ? (wraps ? &run_ternary<U32, U32, U32, U32, FunnelLeft<true>>
                                        : &run_ternary<U32, U32, U32, U32, FunnelLeft<false>>)
                               : (wraps ? &run_ternary<U32, U32, U32, U32, FunnelRight<true>>
                                        : &run_ternary<U32, U32, U32, U32, FunnelRight<false>>);
  return {.execute = type == PtxType::B32 ? execute : nullptr,
          .types = {type, type, type, PtxType::U32}};
}

}  // namespace

Choice choose_bits(std::string_view opcode, Modifiers& modifiers) {
  if (opcode == "shf") return choose_funnel(modifiers);
  const Modifiers unchanged = modifiers;
  const PtxType type = modifiers.take_type();
  if (opcode == "and") return logic<BitAnd>(type);
  if (opcode == "or") return logic<BitOr>(type);
  if (opcode == "xor") return logic<BitXor>(type);
  if (opcode == "not") return unary_logic<BitNot>(type);
  if (opcode == "cnot") return unary_logic<LogicalNot>(type);
  if (opcode == "mov") return unary_logic<BitCopy>(type);
  if (opcode == "shl") return choose_shift(true, type);
  if (opcode == "shr") return choose_shift(false, type);
  if (opcode == "popc") return counted<CountOnes>(type);
  if (opcode == "clz") return counted<CountLeadingZeros>(type);
  if (opcode == "bfind") {
    return modifiers.take("shiftamt") ? counted<FindHighest<true>>(type)
                                      : counted<FindHighest<false>>(type);
  }
  if (opcode == "brev") return unary_logic<BitReverse>(type);
  if (opcode == "bfe") return choose_extract(type);
  if (opcode == "bfi") {
    const Execute execute = type == PtxType::B32   ? &run_insert_field<U32>
                            : type == PtxType::B64 ? &run_insert_field<U64>
                                                   : nullptr;
    return {.execute = execute, .types = {type, type, type, PtxType::U32, PtxType::U32}};
  }
  if (opcode == "lop3" && type == PtxType::B32) {
    return {.execute = &run_lookup, .types = {type, type, type, type, PtxType::U32}};
  }
  if (opcode == "prmt" && type == PtxType::B32) {
    return {.execute = &run_ternary<U32, U32, U32, U32, Permute>,
            .types = {type, type, type, type}};
  }
  modifiers = unchanged;
  return {};
}

}  // namespace cuvmm::sim
