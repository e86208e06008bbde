// SPDX-License-Identifier: Apache-2.0
// Comparisons and selections.
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

struct Equal {
  template <class T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  static bool of(T a, T b) {
    return a != b && (a == a && b == b);
  }
};
struct Less {
  template <class T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static bool of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static bool of(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  static bool of(T a, T b) {
    return a >= b;
  }
};
// True for unordered operands, too.
template <class Ordered>
struct OrUnordered {
  template <class T>
  static bool of(T a, T b) {
    return Ordered::of(a, b) || a != a || b != b;
  }
};
struct Numbers {
  template <class T>
  static bool of(T a, T b) {
    return a == a && b == b;
  }
};
struct AnyNotANumber {
  template <class T>
  static bool of(T a, T b) {
    return a != a || b != b;
  }
};

// variant: how the result is combined with the predicate c: 0 not at all, 1 and, 2 or, 3 xor.
template <class T, class Function>
void run_comparison(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const T* a = warp.lanes_of<T>(instruction.a);
  const T* b = warp.lanes_of<T>(instruction.b);
  std::uint32_t result = 0;
  each_lane(lanes, [&](unsigned lane) {
    result |= static_cast<std::uint32_t>(Function::of(a[lane], b[lane])) << lane;
  });
  std::uint32_t opposite = ~result;
  if (instruction.variant != 0) {
    const std::uint32_t c =
        instruction.c_negated ? ~warp.predicate(instruction.c) : warp.predicate(instruction.c);
    const auto meet = [&](std::uint32_t value) {
      if (instruction.variant == 1) return value & c;
      return instruction.variant == 2 ? value | c : value ^ c;
    };
    result = meet(result);
    opposite = meet(opposite);
  }
  if (instruction.d != no_operand) warp.set_predicate(instruction.d, lanes, result);
  if (instruction.e != no_operand) warp.set_predicate(instruction.e, lanes, opposite);
}

template <class Function>
Execute of_integers(PtxType type) {
  switch (type) {
    case PtxType::B16:
    case PtxType::U16:
      return &run_comparison<std::uint16_t, Function>;
    case PtxType::B32:
    case PtxType::U32:
      return &run_comparison<std::uint32_t, Function>;
    case PtxType::B64:
    case PtxType::U64:
      return &run_comparison<std::uint64_t, Function>;
    case PtxType::S16:
      return &run_comparison<std::int16_t, Function>;
    case PtxType::S32:
      return &run_comparison<std::int32_t, Function>;
    case PtxType::S64:
      return &run_comparison<std::int64_t, Function>;
    default:
      return nullptr;
  }
}
template <class Function>
Execute of_floats(PtxType type) {
  if (type == PtxType::F32) return &run_comparison<float, Function>;
  return type == PtxType::F64 ? &run_comparison<double, Function> : nullptr;
}
template <class Function>
Execute of_all(PtxType type) {
  const Execute execute = of_floats<Function>(type);
  return execute != nullptr ? execute : of_integers<Function>(type);
}

bool is_float(PtxType type) {
  return type == PtxType::F32 || type == PtxType::F64;
}

Execute comparison(std::string_view name, PtxType type) {
  if (name == "eq") return of_all<Equal>(type);
  if (name == "ne") return of_all<NotEqual>(type);
  if (name == "lt" || (name == "lo" && !is_float(type))) return of_all<Less>(type);
  if (name == "le" || (name == "ls" && !is_float(type))) return of_all<LessOrEqual>(type);
  if (name == "gt" || (name == "hi" && !is_float(type))) return of_all<Greater>(type);
  if (name == "ge" || (name == "hs" && !is_float(type))) return of_all<GreaterOrEqual>(type);
  if (name == "equ") return of_floats<OrUnordered<Equal>>(type);
  if (name == "neu") return of_floats<OrUnordered<NotEqual>>(type);
  if (name == "ltu") return of_floats<OrUnordered<Less>>(type);
  if (name == "leu") return of_floats<OrUnordered<LessOrEqual>>(type);
  if (name == "gtu") return of_floats<OrUnordered<Greater>>(type);
  if (name == "geu") return of_floats<OrUnordered<GreaterOrEqual>>(type);
  if (name == "num") return of_floats<Numbers>(type);
  if (name == "nan") return of_floats<AnyNotANumber>(type);
  return nullptr;
}

Choice choose_setp(Modifiers& modifiers) {
  const PtxType type = modifiers.take_type();
  const std::uint32_t mode = take_float_mode(modifiers);
  const Execute execute = comparison(modifiers.first(), type);
  if (execute == nullptr) return {};
  modifiers.drop_first();
  std::uint8_t variant = 0;
  if (modifiers.take("and")) variant = 1;
  if (modifiers.take("or")) variant = 2;
  if (modifiers.take("xor")) variant = 3;
  std::vector<PtxType> types{PtxType::Pred, type, type};
  if (variant != 0) types.push_back(PtxType::Pred);
  return {.execute = execute, .types = std::move(types), .float_mode = mode, .variant = variant};
}

template <class T>
void run_selection(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  T* d = warp.lanes_of<T>(instruction.d);
  const T* a = warp.lanes_of<T>(instruction.a);
  const T* b = warp.lanes_of<T>(instruction.b);
  const std::uint32_t chosen =
      instruction.c_negated ? ~warp.predicate(instruction.c) : warp.predicate(instruction.c);
  each_lane(lanes,
            [&](unsigned lane) { d[lane] = ((chosen >> lane) & 1) != 0 ? a[lane] : b[lane]; });
}

template <class T, class Sign>
void run_selection_by_sign(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  T* d = warp.lanes_of<T>(instruction.d);
  const T* a = warp.lanes_of<T>(instruction.a);
  const T* b = warp.lanes_of<T>(instruction.b);
  const Sign* sign = warp.lanes_of<Sign>(instruction.c);
  each_lane(lanes, [&](unsigned lane) { d[lane] = sign[lane] >= 0 ? a[lane] : b[lane]; });
}

Choice choose_selp(PtxType type) {
  Execute execute = nullptr;
  switch (size_of(type)) {
    case 2:
      execute = &run_selection<std::uint16_t>;
      break;
    case 4:
      execute = &run_selection<std::uint32_t>;
      break;
    case 8:
      execute = &run_selection<std::uint64_t>;
      break;
    default:
      break;
  }
  return {.execute = execute, .types = {type, type, type, PtxType::Pred}};
}

Choice choose_slct(Modifiers& modifiers, PtxType type) {
  const std::uint32_t mode = take_float_mode(modifiers);
  const PtxType sign = modifiers.take_type();
  const bool is_float_sign = sign == PtxType::F32;
  if (!is_float_sign && sign != PtxType::S32) return {};
  Execute execute = nullptr;
  switch (size_of(type)) {
    case 2:
      execute = is_float_sign ? &run_selection_by_sign<std::uint16_t, float>
                              : &run_selection_by_sign<std::uint16_t, std::int32_t>;
      break;
    case 4:
      execute = is_float_sign ? &run_selection_by_sign<std::uint32_t, float>
                              : &run_selection_by_sign<std::uint32_t, std::int32_t>;
      break;
    case 8:
      execute = is_float_sign ? &run_selection_by_sign<std::uint64_t, float>
                              : &run_selection_by_sign<std::uint64_t, std::int32_t>;
      break;
    default:
      break;
  }
  return {.execute = execute, .types = {type, type, type, sign}, .float_mode = mode};
}

}  // namespace

Choice choose_comparison(std::string_view opcode, Modifiers& modifiers) {
  if (opcode == "setp") return choose_setp(modifiers);
  if (opcode == "selp") return choose_selp(modifiers.take_type());
  if (opcode == "slct") {
    const PtxType type = modifiers.take_type();
    return choose_slct(modifiers, type);
  }
  return {};
}

}  // namespace cuvmm::sim
