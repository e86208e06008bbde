// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic.
#include <limits>
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
struct TwiceAsWide;
template <>
struct TwiceAsWide<U16> {
  using Type = U32;
};
template <>
struct TwiceAsWide<S16> {
  using Type = S32;
};
template <>
struct TwiceAsWide<U32> {
  using Type = U64;
};
template <>
struct TwiceAsWide<S32> {
  using Type = S64;
};
template <>
struct TwiceAsWide<U64> {
  using Type = unsigned __int128;
};
template <>
struct TwiceAsWide<S64> {
  using Type = __int128;
};
template <class T>
using Wide = typename TwiceAsWide<T>::Type;

// Short types would be promoted to int, whose overflow is undefined.
template <class T>
T wrapped_product(T a, T b) {
  return static_cast<T>(static_cast<U64>(a) * static_cast<U64>(b));
}

struct IntegerAdd {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct IntegerSubtract {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
struct AddSaturated {
  static S32 of(S32 a, S32 b) {
    S32 r = 0;
    return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT32_MIN : INT32_MAX) : r;
  }
};
struct SubtractSaturated {
  static S32 of(S32 a, S32 b) {
    S32 r = 0;
    return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? INT32_MIN : INT32_MAX) : r;
  }
};
struct MultiplyLow {
  template <class T>
  static T of(T a, T b) {
    return wrapped_product(a, b);
  }
};
struct MultiplyHigh {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> bits_of<T>);
  }
};
struct MultiplyWide {
  template <class T>
  static Wide<T> of(T a, T b) {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
};
struct MultiplyAddLow {
  template <class T>
  static T of(T a, T b, T c) {
    return IntegerAdd::of(wrapped_product(a, b), c);
  }
};
struct MultiplyAddHigh {
  template <class T>
  static T of(T a, T b, T c) {
    return IntegerAdd::of(MultiplyHigh::of(a, b), c);
  }
};
struct MultiplyAddWide {
  template <class T>
  static Wide<T> of(T a, T b, Wide<T> c) {
    return IntegerAdd::of(MultiplyWide::of(a, b), c);
  }
};
template <class T>
T low_24(T value) {
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<T>(static_cast<Unsigned<T>>(value) << 8) >> 8);
  } else {
    return value & 0xffffff;
  }
}
struct Multiply24Low {
  template <class T>
  static T of(T a, T b) {
    return wrapped_product(low_24(a), low_24(b));
  }
};
struct MultiplyAdd24Low {
  template <class T>
  static T of(T a, T b, T c) {
    return IntegerAdd::of(Multiply24Low::of(a, b), c);
  }
};
// Division by zero gives all ones, and the dividend as remainder (assumed; PTX leaves it open).
struct IntegerDivide {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(~Unsigned<T>{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return IntegerSubtract::of(T{0}, a);
    }
    return static_cast<T>(a / b);
  }
};
struct IntegerRemainder {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct IntegerMinimum {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
};
struct IntegerMaximum {
  template <class T>
  static T of(T a, T b) {
    return b > a ? b : a;
  }
};
struct IntegerAbsolute {
  template <class T>
  static T of(T a) {
    return a < 0 ? IntegerSubtract::of(T{0}, a) : a;
  }
};
struct IntegerNegate {
  template <class T>
  static T of(T a) {
    return IntegerSubtract::of(T{0}, a);
  }
};
struct SumOfDifference {
  template <class T>
  static T of(T a, T b, T c) {
    return IntegerAdd::of(c, a < b ? IntegerSubtract::of(b, a) : IntegerSubtract::of(a, b));
  }
};

template <class Function, class T>
Execute integer_binary() {
  return &run_binary<T, T, T, Function>;
}

template <class Maker>
Execute by_type(PtxType type, Maker&& maker) {
  switch (type) {
    case PtxType::U16:
    case PtxType::B16:
      return maker(U16{});
    case PtxType::U32:
    case PtxType::B32:
      return maker(U32{});
    case PtxType::U64:
    case PtxType::B64:
      return maker(U64{});
    case PtxType::S16:
      return maker(S16{});
    case PtxType::S32:
      return maker(S32{});
    case PtxType::S64:
      return maker(S64{});
    default:
      return nullptr;
  }
}

template <class Function>
Choice simple_binary(PtxType type) {
  const Execute execute =
      by_type(type, [](auto t) { return integer_binary<Function, decltype(t)>(); });
  return {.execute = execute, .types = {type, type, type}};
}

template <class Function>
Choice simple_ternary(PtxType type) {
  const Execute execute = by_type(type, [](auto t) -> Execute {
    using T = decltype(t);
    return &run_ternary<T, T, T, T, Function>;
  });
  return {.execute = execute, .types = {type, type, type, type}};
}

template <class Function>
Choice signed_unary(PtxType type) {
  Execute execute = nullptr;
  if (type == PtxType::S16) execute = &run_unary<S16, S16, Function>;
  if (type == PtxType::S32) execute = &run_unary<S32, S32, Function>;
  if (type == PtxType::S64) execute = &run_unary<S64, S64, Function>;
  return {.execute = execute, .types = {type, type}};
}

PtxType twice_as_wide(PtxType type) {
  switch (type) {
    case PtxType::U16:
      return PtxType::U32;
    case PtxType::S16:
      return PtxType::S32;
    case PtxType::U32:
      return PtxType::U64;
    case PtxType::S32:
      return PtxType::S64;
    default:
      return PtxType::Other;
  }
}

template <class Function>
Choice wide_product(PtxType type, bool adds) {
  Execute execute = nullptr;
  const auto made = [&](auto t) -> Execute {
    using T = decltype(t);
    if constexpr (sizeof(T) == 8) {
      return nullptr;
    } else if constexpr (std::is_same_v<Function, MultiplyWide>) {
      return &run_binary<Wide<T>, T, T, Function>;
    } else {
      return &run_ternary<Wide<T>, T, T, Wide<T>, Function>;
    }
  };
  execute = by_type(type, made);
  const PtxType wide = twice_as_wide(type);
  if (wide == PtxType::Other) return {};
  if (adds) return {.execute = execute, .types = {wide, type, type, wide}};
  return {.execute = execute, .types = {wide, type, type}};
}

bool is_integer(PtxType type) {
  return type >= PtxType::U8 && type <= PtxType::S64;
}

Choice choose_product(std::string_view opcode, Modifiers& modifiers, PtxType type) {
  const bool adds = opcode == "mad";
  if (modifiers.take("lo")) {
    return adds ? simple_ternary<MultiplyAddLow>(type) : simple_binary<MultiplyLow>(type);
  }
  if (modifiers.take("hi")) {
    return adds ? simple_ternary<MultiplyAddHigh>(type) : simple_binary<MultiplyHigh>(type);
  }
  if (modifiers.take("wide")) {
    return adds ? wide_product<MultiplyAddWide>(type, true)
                : wide_product<MultiplyWide>(type, false);
  }
  return {};
}

}  // namespace

Choice choose_integer(std::string_view opcode, Modifiers& modifiers) {
  Modifiers unchanged = modifiers;
  const PtxType type = modifiers.take_type();
  if (!is_integer(type)) {
    modifiers = unchanged;
    return {};
  }
  if (opcode == "add" || opcode == "sub") {
    const bool adds = opcode == "add";
    if (modifiers.take("sat")) {
      if (type != PtxType::S32) return {};
      return adds ? Choice{.execute = &run_binary<S32, S32, S32, AddSaturated>,
                           .types = {type, type, type}}
                  : Choice{.execute = &run_binary<S32, S32, S32, SubtractSaturated>,
                           .types = {type, type, type}};
    }
    return adds ? simple_binary<IntegerAdd>(type) : simple_binary<IntegerSubtract>(type);
  }
  if (opcode == "mul" || opcode == "mad") return choose_product(opcode, modifiers, type);
  if (opcode == "mul24" && modifiers.take("lo")) {
    return type == PtxType::S32 ? Choice{.execute = &run_binary<S32, S32, S32, Multiply24Low>,
                                         .types = {type, type, type}}
                                : Choice{.execute = &run_binary<U32, U32, U32, Multiply24Low>,
                                         .types = {type, type, type}};
  }
  if (opcode == "mad24" && modifiers.take("lo")) {
    return type == PtxType::S32
               ? Choice{.execute = &run_ternary<S32, S32, S32, S32, MultiplyAdd24Low>,
                        .types = {type, type, type, type}}
               : Choice{.execute = &run_ternary<U32, U32, U32, U32, MultiplyAdd24Low>,
                        .types = {type, type, type, type}};
  }
  if (opcode == "div") return simple_binary<IntegerDivide>(type);
  if (opcode == "rem") return simple_binary<IntegerRemainder>(type);
  if (opcode == "min") return simple_binary<IntegerMinimum>(type);
  if (opcode == "max") return simple_binary<IntegerMaximum>(type);
  if (opcode == "sad") return simple_ternary<SumOfDifference>(type);
  if (opcode == "abs") return signed_unary<IntegerAbsolute>(type);
  if (opcode == "neg") return signed_unary<IntegerNegate>(type);
  modifiers = unchanged;
  return {};
}

}  // namespace cuvmm::sim
