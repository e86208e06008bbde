// SPDX-License-Identifier: Apache-2.0
// set, whose result is a number, and setp of 16-bit floating point numbers. These are rare: one
// function serves all comparisons, at some cost in speed.
#include <iterator>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"
#include "sim/interpreter/short_floats.hpp"

namespace cuvmm::sim {
namespace {

// How two values relate, one bit each. A comparison is the set of relations that it accepts.
constexpr unsigned is_less = 1;
constexpr unsigned is_equal = 2;
constexpr unsigned is_greater = 4;
constexpr unsigned is_unordered = 8;

struct NamedRelation {
  std::string_view name;
  unsigned accepted;
};
constexpr NamedRelation named_relations[] = {{"eq", is_equal},
                                             {"ne", is_less | is_greater},
                                             {"lt", is_less},
                                             {"le", is_less | is_equal},
                                             {"gt", is_greater},
                                             {"ge", is_greater | is_equal},
                                             {"lo", is_less},
                                             {"ls", is_less | is_equal},
                                             {"hi", is_greater},
                                             {"hs", is_greater | is_equal},
                                             {"equ", is_equal | is_unordered},
                                             {"neu", is_less | is_greater | is_unordered},
                                             {"ltu", is_less | is_unordered},
                                             {"leu", is_less | is_equal | is_unordered},
                                             {"gtu", is_greater | is_unordered},
                                             {"geu", is_greater | is_equal | is_unordered},
                                             {"num", is_less | is_equal | is_greater},
                                             {"nan", is_unordered}};

template <class T>
unsigned relation(T a, T b) {
  if (a < b) return is_less;
  if (a > b) return is_greater;
  return a == b ? is_equal : is_unordered;
}
unsigned relation(Half a, Half b) {
  return relation(value_of(a), value_of(b));
}
unsigned relation(BrainFloat a, BrainFloat b) {
  return relation(value_of(a), value_of(b));
}

// variant: bits 0-3 the accepted relations, bits 4-5 how the result is combined with the predicate
// c: 0 not at all, 1 and, 2 or, 3 xor. immediate: the value that represents true.
constexpr unsigned accepted_mask = 15;
constexpr unsigned combination_shift = 4;

std::uint32_t with_predicate(Warp& warp, const Instruction& instruction, std::uint32_t result) {
  const unsigned how = (instruction.variant >> combination_shift) & 3;
  if (how == 0) return result;
  const std::uint32_t c =
      instruction.c_negated ? ~warp.predicate(instruction.c) : warp.predicate(instruction.c);
  if (how == 1) return result & c;
  return how == 2 ? result | c : result ^ c;
}

// One bit per lane, for the part of a pair with that index; 0 is the lower half.
template <class T>
std::uint32_t relations_of(Warp& warp, const Instruction& instruction, std::uint32_t lanes,
                           unsigned parts, unsigned index) {
  const T* a = warp.lanes_of<T>(instruction.a);
  const T* b = warp.lanes_of<T>(instruction.b);
  std::uint32_t result = 0;
  each_lane(lanes, [&](unsigned lane) {
    const unsigned at = lane * parts + index;
    const bool holds = (relation(a[at], b[at]) & instruction.variant & accepted_mask) != 0;
    result |= static_cast<std::uint32_t>(holds) << lane;
  });
  return with_predicate(warp, instruction, result);
}

template <class T>
void run_set(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t result = relations_of<T>(warp, instruction, lanes, 1, 0);
  const auto one = static_cast<std::uint64_t>(instruction.immediate);
  each_lane(lanes, [&](unsigned lane) {
    warp.write(instruction.d, instruction.width_d, lane, ((result >> lane) & 1) != 0 ? one : 0);
  });
}

template <class T>
void run_set_pair(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t low = relations_of<T>(warp, instruction, lanes, 2, 0);
  const std::uint32_t high = relations_of<T>(warp, instruction, lanes, 2, 1);
  const auto one = static_cast<U32>(instruction.immediate) & 0xffff;
  auto* d = warp.lanes_of<U32>(instruction.d);
  each_lane(lanes, [&](unsigned lane) {
    d[lane] = (((low >> lane) & 1) != 0 ? one : 0) | (((high >> lane) & 1) != 0 ? one << 16 : 0);
  });
}

// The second predicate of setp is the complement of the first. For pairs, the predicates belong to
// the lower and the upper half.
template <class T, unsigned parts>
void run_short_setp(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t first = relations_of<T>(warp, instruction, lanes, parts, 0);
  if (instruction.d != no_operand) warp.set_predicate(instruction.d, lanes, first);
  if (instruction.e == no_operand) return;
  if constexpr (parts == 2) {
    warp.set_predicate(instruction.e, lanes, relations_of<T>(warp, instruction, lanes, parts, 1));
  } else {
    Instruction opposite = instruction;
    opposite.variant ^= accepted_mask;
    warp.set_predicate(instruction.e, lanes, relations_of<T>(warp, opposite, lanes, 1, 0));
  }
}

Execute set_of(PtxType type) {
  switch (type) {
    case PtxType::B16:
    case PtxType::U16:
      return &run_set<U16>;
    case PtxType::B32:
    case PtxType::U32:
      return &run_set<U32>;
    case PtxType::B64:
    case PtxType::U64:
      return &run_set<U64>;
    case PtxType::S16:
      return &run_set<S16>;
    case PtxType::S32:
      return &run_set<S32>;
    case PtxType::S64:
      return &run_set<S64>;
    case PtxType::F32:
      return &run_set<float>;
    case PtxType::F64:
      return &run_set<double>;
    case PtxType::F16:
      return &run_set<Half>;
    case PtxType::BF16:
      return &run_set<BrainFloat>;
    case PtxType::F16x2:
      return &run_set_pair<Half>;
    case PtxType::BF16x2:
      return &run_set_pair<BrainFloat>;
    default:
      return nullptr;
  }
}

Execute short_setp_of(PtxType type) {
  switch (type) {
    case PtxType::F16:
      return &run_short_setp<Half, 1>;
    case PtxType::BF16:
      return &run_short_setp<BrainFloat, 1>;
    case PtxType::F16x2:
      return &run_short_setp<Half, 2>;
    case PtxType::BF16x2:
      return &run_short_setp<BrainFloat, 2>;
    default:
      return nullptr;
  }
}

// Returns 0 if the modifiers name no comparison.
unsigned take_relation(Modifiers& modifiers) {
  for (const NamedRelation& one : named_relations) {
    if (modifiers.take(one.name)) return one.accepted;
  }
  return 0;
}

unsigned take_combination(Modifiers& modifiers) {
  constexpr std::string_view names[] = {"and", "or", "xor"};
  for (unsigned i = 0; i < std::size(names); ++i) {
    if (modifiers.take(names[i])) return (i + 1) << combination_shift;
  }
  return 0;
}

// 1.0 of floating point types, and all ones of integers.
std::int64_t truth_of(PtxType type) {
  switch (type) {
    case PtxType::F32:
      return 0x3f800000;
    case PtxType::F16:
    case PtxType::F16x2:
      return 0x3c00;
    case PtxType::BF16:
    case PtxType::BF16x2:
      return 0x3f80;
    default:
      return -1;
  }
}

Choice choose_set(Modifiers& modifiers) {
  const unsigned accepted = take_relation(modifiers);
  const unsigned combination = take_combination(modifiers);
  const std::uint32_t mode = take_float_mode(modifiers);
  const PtxType result = modifiers.take_type();
  const PtxType type = modifiers.take_type();
  if (accepted == 0) return {};
  std::vector<PtxType> types{result, type, type};
  if (combination != 0) types.push_back(PtxType::Pred);
  return {.execute = set_of(type),
          .types = std::move(types),
          .float_mode = mode,
          .immediate = truth_of(result),
          .variant = static_cast<std::uint8_t>(accepted | combination)};
}

}  // namespace

Choice choose_relation(std::string_view opcode, Modifiers& modifiers) {
  const Modifiers unchanged = modifiers;
  Choice choice;
  if (opcode == "set") choice = choose_set(modifiers);
  if (opcode == "setp") {
    const unsigned accepted = take_relation(modifiers);
    const unsigned combination = take_combination(modifiers);
    modifiers.take("ftz");
    const PtxType type = modifiers.take_type();
    std::vector<PtxType> types{PtxType::Pred, type, type};
    if (combination != 0) types.push_back(PtxType::Pred);
    if (accepted != 0) {
      choice = {.execute = short_setp_of(type),
                .types = std::move(types),
                .variant = static_cast<std::uint8_t>(accepted | combination)};
    }
  }
  if (choice.execute == nullptr) modifiers = unchanged;
  return choice;
}

}  // namespace cuvmm::sim
