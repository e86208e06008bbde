// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f16 and bf16, alone and in pairs. Every result is rounded once.
#include <bit>
#include <cmath>
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"
#include "sim/interpreter/short_floats.hpp"

namespace cuvmm::sim {
namespace {

// An instruction's variant.
constexpr std::uint8_t short_flushes = 1;
constexpr std::uint8_t short_saturates = 2;
constexpr std::uint8_t short_clears_negative = 4;
constexpr std::uint8_t short_keeps_nan = 8;

// a * b + c, rounded to odd where a double cannot hold it: rounding that to 16 bits gives the same
// as rounding the exact sum.
double product_and_sum(double a, double b, double c) {
  const double product = a * b;  // exact
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double of_c = sum - product;
  const double error = (product - (sum - of_c)) + (c - of_c);
  if (error == 0 || (std::bit_cast<U64>(sum) & 1) != 0) return sum;
  return std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL);
}

struct ShortAdd {
  static double of(double a, double b, double, unsigned) { return product_and_sum(a, 1, b); }
};
struct ShortSubtract {
  static double of(double a, double b, double, unsigned) { return product_and_sum(a, 1, -b); }
};
struct ShortMultiply {
  static double of(double a, double b, double, unsigned) { return a * b; }
};
struct ShortFuse {
  static double of(double a, double b, double c, unsigned) { return product_and_sum(a, b, c); }
};
template <bool smaller>
struct ShortExtreme {
  static double of(double a, double b, double, unsigned variant) {
    if (std::isnan(a) || std::isnan(b)) {
      if ((variant & short_keeps_nan) != 0) return NAN;
      return std::isnan(a) ? b : a;
    }
    if (a == b) return std::signbit(a) == smaller ? a : b;
    return (a < b) == smaller ? a : b;
  }
};
struct ShortPower2 {
  static double of(double a, double, double, unsigned) { return std::exp2(a); }
};
struct ShortTangent {
  static double of(double a, double, double, unsigned) { return std::tanh(a); }
};

template <class T>
double operand_of(std::uint16_t stored, unsigned variant) {
  const T value{stored};
  const double number = static_cast<double>(value_of(value));
  constexpr double smallest_normal = std::is_same_v<T, Half> ? 0x1p-14 : 0x1p-126;
  const bool flushes = (variant & short_flushes) != 0;
  return flushes && std::fabs(number) < smallest_normal ? std::copysign(0.0, number) : number;
}

template <class T>
std::uint16_t finished(double result, unsigned variant) {
  if ((variant & short_saturates) != 0) result = result > 0 ? (result < 1 ? result : 1) : 0;
  if ((variant & short_clears_negative) != 0 && result < 0) result = 0;
  const std::uint16_t stored = to_short_float<T>(result).stored;
  const double rounded = operand_of<T>(stored, variant);
  return rounded == 0 ? static_cast<std::uint16_t>(stored & 0x8000) : stored;
}

// A Word holds one number or two.
template <class T, class Word, class Function>
void run_short(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  Word* d = warp.lanes_of<Word>(instruction.d);
  const Word* a = warp.lanes_of<Word>(instruction.a);
  const Word* b = instruction.b == no_operand ? a : warp.lanes_of<Word>(instruction.b);
  const Word* c = instruction.c == no_operand ? a : warp.lanes_of<Word>(instruction.c);
  const unsigned variant = instruction.variant;
  each_lane(lanes, [&](unsigned lane) {
    Word result = 0;
    for (unsigned shift = 0; shift < bits_of<Word>; shift += 16) {
      const auto part = [&](const Word* from) {
        return operand_of<T>(static_cast<std::uint16_t>(from[lane] >> shift), variant);
      };
      const double value = Function::of(part(a), part(b), part(c), variant);
      result = static_cast<Word>(result | static_cast<Word>(finished<T>(value, variant)) << shift);
    }
    d[lane] = result;
  });
}

struct ChangeSign {
  template <class Word>
  static Word of(Word a) {
    return static_cast<Word>(a ^ static_cast<Word>(0x80008000U));
  }
};
struct ClearSign {
  template <class Word>
  static Word of(Word a) {
    return static_cast<Word>(a & static_cast<Word>(0x7fff7fffU));
  }
};

template <class Function>
Execute for_type(PtxType type) {
  switch (type) {
    case PtxType::F16:
      return &run_short<Half, U16, Function>;
    case PtxType::F16x2:
      return &run_short<Half, U32, Function>;
    case PtxType::BF16:
      return &run_short<BrainFloat, U16, Function>;
    case PtxType::BF16x2:
      return &run_short<BrainFloat, U32, Function>;
    default:
      return nullptr;
  }
}

template <class Function>
Choice sign_operation(PtxType type) {
  return {.execute =
              size_of(type) == 2 ? &run_unary<U16, U16, Function> : &run_unary<U32, U32, Function>,
          .types = {type, type}};
}

}  // namespace

Choice choose_short_float(std::string_view opcode, Modifiers& modifiers) {
  const Modifiers unchanged = modifiers;
  const auto unknown = [&]() -> Choice {
    modifiers = unchanged;
    return {};
  };
  const PtxType type = modifiers.take_type();
  if (for_type<ShortAdd>(type) == nullptr) return unknown();
  unsigned variant = 0;
  if (modifiers.take("ftz")) variant |= short_flushes;
  if (opcode == "neg") return sign_operation<ChangeSign>(type);
  if (opcode == "abs") return sign_operation<ClearSign>(type);
  std::vector<PtxType> types{type, type};
  Execute execute = nullptr;
  if (opcode == "ex2" || opcode == "tanh") {
    if (!modifiers.take("approx")) return unknown();
    execute = opcode == "ex2" ? for_type<ShortPower2>(type) : for_type<ShortTangent>(type);
    return {.execute = execute,
            .types = std::move(types),
            .variant = static_cast<std::uint8_t>(variant)};
  }
  types.push_back(type);
  if (opcode == "min" || opcode == "max") {
    if (modifiers.take("NaN")) variant |= short_keeps_nan;
    execute =
        opcode == "min" ? for_type<ShortExtreme<true>>(type) : for_type<ShortExtreme<false>>(type);
  } else {
    modifiers.take("rn");
    if (modifiers.take("sat")) variant |= short_saturates;
    if (opcode == "add") execute = for_type<ShortAdd>(type);
    if (opcode == "sub") execute = for_type<ShortSubtract>(type);
    if (opcode == "mul") execute = for_type<ShortMultiply>(type);
    if (opcode == "fma") {
      if (modifiers.take("relu")) variant |= short_clears_negative;
      execute = for_type<ShortFuse>(type);
      types.push_back(type);
    }
  }
  if (execute == nullptr) return unknown();
  return {
      .execute = execute, .types = std::move(types), .variant = static_cast<std::uint8_t>(variant)};
}

}  // namespace cuvmm::sim
