// SPDX-License-Identifier: Apache-2.0
// Floating point arithmetic of 32 and 64 bits: exactly IEEE 754, and the host's libm for functions
// that a card approximates.
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "sim/interpreter/float_mode.hpp"
#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

// A card returns the same f32 NaN, whatever the operands were.
inline float tidy(float value) {
  return value != value ? std::bit_cast<float>(0x7fffffffU) : value;
}
inline double tidy(double value) {
  return value;
}

struct FloatAdd {
  template <class T>
  static T of(T a, T b) {
    return tidy(a + b);
  }
};
struct FloatSubtract {
  template <class T>
  static T of(T a, T b) {
    return tidy(a - b);
  }
};
struct FloatMultiply {
  template <class T>
  static T of(T a, T b) {
    return tidy(a * b);
  }
};
struct FloatDivide {
  template <class T>
  static T of(T a, T b) {
    return tidy(a / b);
  }
};
struct FloatFuse {
  template <class T>
  static T of(T a, T b, T c) {
    return tidy(std::fma(a, b, c));
  }
};
struct FloatReciprocal {
  template <class T>
  static T of(T a) {
    return tidy(T{1} / a);
  }
};
struct FloatSquareRoot {
  template <class T>
  static T of(T a) {
    return tidy(std::sqrt(a));
  }
};
struct FloatReciprocalRoot {
  template <class T>
  static T of(T a) {
    return tidy(T{1} / std::sqrt(a));
  }
};
struct FloatSine {
  template <class T>
  static T of(T a) {
    return tidy(std::sin(a));
  }
};
struct FloatCosine {
  template <class T>
  static T of(T a) {
    return tidy(std::cos(a));
  }
};
struct FloatPower2 {
  template <class T>
  static T of(T a) {
    return tidy(std::exp2(a));
  }
};
struct FloatLogarithm2 {
  template <class T>
  static T of(T a) {
    return tidy(std::log2(a));
  }
};
struct FloatTangent {
  template <class T>
  static T of(T a) {
    return tidy(std::tanh(a));
  }
};
struct FloatAbsolute {
  template <class T>
  static T of(T a) {
    return std::fabs(a);
  }
};
struct FloatNegate {
  template <class T>
  static T of(T a) {
    return -a;
  }
};
struct FloatCopySign {
  template <class T>
  static T of(T a, T b) {
    return std::copysign(b, a);
  }
};

template <class T>
T not_a_number() {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<float>(0x7fffffffU);
  } else {
    return std::bit_cast<double>(std::uint64_t{0x7fffffffffffffff});
  }
}

// -0 is less than +0. A number wins over NaN unless the instruction asks for NaN.
template <bool smaller, bool keeps_nan>
struct FloatExtreme {
  template <class T>
  static T of(T a, T b) {
    if (a != a || b != b) {
      if (keeps_nan || (a != a && b != b)) return not_a_number<T>();
      return a != a ? b : a;
    }
    if (a == b) return std::signbit(a) == smaller ? a : b;
    return (a < b) == smaller ? a : b;
  }
};

template <class Function>
Choice float_unary(PtxType type) {
  const Execute execute = type == PtxType::F32   ? &run_unary<float, float, Function>
                          : type == PtxType::F64 ? &run_unary<double, double, Function>
                                                 : nullptr;
  return {.execute = execute, .types = {type, type}};
}
template <class Function>
Choice float_binary(PtxType type) {
  const Execute execute = type == PtxType::F32   ? &run_binary<float, float, float, Function>
                          : type == PtxType::F64 ? &run_binary<double, double, double, Function>
                                                 : nullptr;
  return {.execute = execute, .types = {type, type, type}};
}

// Clamps to [0, 1]; NaN becomes 0.
template <class Function>
struct FloatSaturated {
  template <class... T>
  static float of(T... values) {
    const float value = Function::of(values...);
    return value > 0 ? (value < 1 ? value : 1.0F) : 0.0F;
  }
};
template <class Function>
Choice float_binary_or_saturated(PtxType type, bool saturates) {
  if (!saturates) return float_binary<Function>(type);
  if (type != PtxType::F32) return {};
  return {.execute = &run_binary<float, float, float, FloatSaturated<Function>>,
          .types = {type, type, type}};
}
Choice fused(PtxType type, bool saturates) {
  Execute execute = nullptr;
  if (type == PtxType::F32) {
    execute = saturates ? &run_ternary<float, float, float, float, FloatSaturated<FloatFuse>>
                        : &run_ternary<float, float, float, float, FloatFuse>;
  } else if (type == PtxType::F64 && !saturates) {
    execute = &run_ternary<double, double, double, double, FloatFuse>;
  }
  return {.execute = execute, .types = {type, type, type, type}};
}

template <bool smaller>
Choice extreme(PtxType type, bool keeps_nan) {
  return keeps_nan ? float_binary<FloatExtreme<smaller, true>>(type)
                   : float_binary<FloatExtreme<smaller, false>>(type);
}

Choice choose_approximate(std::string_view opcode, Modifiers& modifiers, PtxType type) {
  modifiers.take("approx");
  if (opcode == "rcp") return float_unary<FloatReciprocal>(type);
  if (opcode == "sqrt") return float_unary<FloatSquareRoot>(type);
  if (opcode == "rsqrt") return float_unary<FloatReciprocalRoot>(type);
  if (opcode == "sin") return float_unary<FloatSine>(type);
  if (opcode == "cos") return float_unary<FloatCosine>(type);
  if (opcode == "ex2") return float_unary<FloatPower2>(type);
  if (opcode == "lg2") return float_unary<FloatLogarithm2>(type);
  if (opcode == "tanh") return float_unary<FloatTangent>(type);
  return {};
}

// testp; variant selects the test.
template <class T>
void run_test(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const T* a = warp.lanes_of<T>(instruction.a);
  std::uint32_t result = 0;
  each_lane(lanes, [&](unsigned lane) {
    const int kind = std::fpclassify(a[lane]);
    bool holds = false;
    switch (instruction.variant) {
      case 0:
        holds = kind != FP_INFINITE && kind != FP_NAN;
        break;
      case 1:
        holds = kind == FP_INFINITE;
        break;
      case 2:
        holds = kind != FP_NAN;
        break;
      case 3:
        holds = kind == FP_NAN;
        break;
      case 4:
        holds = kind == FP_NORMAL;
        break;
      default:
        holds = kind == FP_SUBNORMAL;
        break;
    }
    if (holds) result |= 1U << lane;
  });
  warp.set_predicate(instruction.d, lanes, result);
}

Choice choose_test(Modifiers& modifiers, PtxType type) {
  constexpr std::string_view kinds[] = {"finite",     "infinite", "number",
                                        "notanumber", "normal",   "subnormal"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!modifiers.take(kinds[i])) continue;
    const Execute execute = type == PtxType::F32   ? &run_test<float>
                            : type == PtxType::F64 ? &run_test<double>
                                                   : nullptr;
    return {.execute = execute,
            .types = {PtxType::Pred, type},
            .variant = static_cast<std::uint8_t>(i)};
  }
  return {};
}

Choice choose_plain(std::string_view opcode, Modifiers& modifiers, PtxType type) {
  const bool saturates = modifiers.take("sat");
  if (opcode == "add") return float_binary_or_saturated<FloatAdd>(type, saturates);
  if (opcode == "sub") return float_binary_or_saturated<FloatSubtract>(type, saturates);
  if (opcode == "mul") return float_binary_or_saturated<FloatMultiply>(type, saturates);
  if (opcode == "fma" || opcode == "mad") return fused(type, saturates);
  if (saturates) return {};
  if (opcode == "div") {
    modifiers.take("approx");
    modifiers.take("full");
    return float_binary<FloatDivide>(type);
  }
  const bool keeps_nan = modifiers.take("NaN");
  if (opcode == "min") return extreme<true>(type, keeps_nan);
  if (opcode == "max") return extreme<false>(type, keeps_nan);
  if (keeps_nan) return {};
  if (opcode == "abs") return float_unary<FloatAbsolute>(type);
  if (opcode == "neg") return float_unary<FloatNegate>(type);
  if (opcode == "copysign") return float_binary<FloatCopySign>(type);
  if (opcode == "mov") return {};
  return choose_approximate(opcode, modifiers, type);
}

}  // namespace

std::uint32_t take_float_mode(Modifiers& modifiers) {
  std::uint32_t mode = 0;
  if (modifiers.take("rz")) mode = usual_float_mode | rounds_to_zero;
  if (modifiers.take("rm")) mode = usual_float_mode | rounds_down;
  if (modifiers.take("rp")) mode = usual_float_mode | rounds_up;
  modifiers.take("rn");
  if (modifiers.take("ftz")) mode = (mode == 0 ? usual_float_mode : mode) | flushes;
  return mode;
}

void run_in_float_mode(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t before = float_mode();
  set_float_mode(instruction.float_mode);
  instruction.inner(warp, instruction, lanes);
  set_float_mode(before);
}

Choice choose_float(std::string_view opcode, Modifiers& modifiers) {
  const Modifiers unchanged = modifiers;
  const PtxType type = modifiers.take_type();
  if (type != PtxType::F32 && type != PtxType::F64) {
    modifiers = unchanged;
    return {};
  }
  if (opcode == "testp") return choose_test(modifiers, type);
  const std::uint32_t mode = take_float_mode(modifiers);
  Choice choice = choose_plain(opcode, modifiers, type);
  choice.float_mode = mode;
  if (choice.execute == nullptr) modifiers = unchanged;
  return choice;
}

}  // namespace cuvmm::sim
