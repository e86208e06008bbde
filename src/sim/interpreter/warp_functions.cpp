// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/warp_functions.hpp"

#include <algorithm>
#include <bit>

#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/warp.hpp"

namespace cuvmm::sim {
namespace {

enum ShuffleKind : std::uint8_t { Up, Down, Butterfly, Index };

// a: value, b: lane or distance, c: clamp and mask. If count is not 0, first is a predicate that
// says whether the source lane was in range.
void run_shuffle(Warp& warp, const Instruction& instruction, U32 lanes) {
  U32 before[warp_size];
  std::copy_n(warp.lanes_of<U32>(instruction.a), warp_size, before);
  const U32* b = warp.lanes_of<U32>(instruction.b);
  const U32* c = warp.lanes_of<U32>(instruction.c);
  U32* d = warp.lanes_of<U32>(instruction.d);
  U32 in_range = 0;
  each_lane(lanes, [&](unsigned lane) {
    const U32 distance = b[lane] & 31;
    const U32 clamp = c[lane] & 31;
    const U32 mask = (c[lane] >> 8) & 31;
    const U32 most = (lane & mask) | (clamp & ~mask);
    const U32 least = lane & mask;
    U32 from = 0;
    bool is_in = false;
    switch (instruction.variant) {
      case Up:
        from = lane - distance;
        is_in = static_cast<int>(from) >= static_cast<int>(most);
        break;
      case Down:
        from = lane + distance;
        is_in = from <= most;
        break;
      case Butterfly:
        from = lane ^ distance;
        is_in = from <= most;
        break;
      default:
        from = least | (distance & ~mask);
        is_in = from <= most;
        break;
    }
    if (!is_in) from = lane;
    if (is_in) in_range |= 1U << lane;
    d[lane] = before[from & 31];
  });
  if (instruction.count != 0) warp.set_predicate(instruction.first, lanes, in_range);
}

enum VoteKind : std::uint8_t { VoteAll, VoteAny, VoteUniform, VoteBallot };

void run_vote(Warp& warp, const Instruction& instruction, U32 lanes) {
  U32 yes = warp.predicate(instruction.a);
  if (instruction.c_negated) yes = ~yes;
  yes &= lanes;
  switch (instruction.variant) {
    case VoteAll:
      warp.set_predicate(instruction.d, lanes, yes == lanes ? all_lanes : 0);
      break;
    case VoteAny:
      warp.set_predicate(instruction.d, lanes, yes != 0 ? all_lanes : 0);
      break;
    case VoteUniform:
      warp.set_predicate(instruction.d, lanes, yes == 0 || yes == lanes ? all_lanes : 0);
      break;
    default: {
      U32* d = warp.lanes_of<U32>(instruction.d);
      each_lane(lanes, [&](unsigned lane) { d[lane] = yes; });
    }
  }
}

template <class T, bool all>
void run_match(Warp& warp, const Instruction& instruction, U32 lanes) {
  const T* a = warp.lanes_of<T>(instruction.a);
  U32 result[warp_size] = {};
  U32 matched = 0;
  each_lane(lanes, [&](unsigned lane) {
    each_lane(lanes, [&](unsigned other) {
      if (a[other] == a[lane]) result[lane] |= 1U << other;
    });
    if (result[lane] == lanes) matched |= 1U << lane;
  });
  U32* d = warp.lanes_of<U32>(instruction.d);
  each_lane(lanes,
            [&](unsigned lane) { d[lane] = !all || result[lane] == lanes ? result[lane] : 0; });
  if (instruction.count != 0) warp.set_predicate(instruction.first, lanes, matched);
}

enum ReductionKind : std::uint8_t { Sum, Least, Most, Both, Either, Odd };

template <class T>
void run_reduction(Warp& warp, const Instruction& instruction, U32 lanes) {
  const T* a = warp.lanes_of<T>(instruction.a);
  T total = a[std::countr_zero(lanes)];
  each_lane(lanes & (lanes - 1), [&](unsigned lane) {
    const T value = a[lane];
    switch (instruction.variant) {
      case Sum:
        total = static_cast<T>(static_cast<U32>(total) + static_cast<U32>(value));
        break;
      case Least:
        total = std::min(total, value);
        break;
      case Most:
        total = std::max(total, value);
        break;
      case Both:
        total = total & value;
        break;
      case Either:
        total = total | value;
        break;
      default:
        total = total ^ value;
        break;
    }
  });
  T* d = warp.lanes_of<T>(instruction.d);
  each_lane(lanes, [&](unsigned lane) { d[lane] = total; });
}

void run_active_lanes(Warp& warp, const Instruction& instruction, U32 lanes) {
  U32* d = warp.lanes_of<U32>(instruction.d);
  each_lane(lanes, [&](unsigned lane) { d[lane] = lanes; });
}

void run_nothing(Warp&, const Instruction&, U32) {}

Choice choose_shuffle(Modifiers& modifiers) {
  if (!modifiers.take("sync")) return {};
  constexpr std::string_view kinds[] = {"up", "down", "bfly", "idx"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!modifiers.take(kinds[i]) || modifiers.take_type() != PtxType::B32) continue;
    return {.execute = &run_shuffle,
            .types = {PtxType::B32, PtxType::B32, PtxType::B32, PtxType::B32, PtxType::B32},
            .variant = static_cast<std::uint8_t>(i)};
  }
  return {};
}

Choice choose_vote(Modifiers& modifiers) {
  if (!modifiers.take("sync")) return {};
  constexpr std::string_view kinds[] = {"all", "any", "uni", "ballot"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!modifiers.take(kinds[i])) continue;
    const PtxType type = modifiers.take_type();
    return {.execute = &run_vote,
            .types = {type, PtxType::Pred, PtxType::B32},
            .variant = static_cast<std::uint8_t>(i)};
  }
  return {};
}

Choice choose_match(Modifiers& modifiers) {
  if (!modifiers.take("sync")) return {};
  const bool all = modifiers.take("all");
  if (!all && !modifiers.take("any")) return {};
  const PtxType type = modifiers.take_type();
  const bool is_long = size_of(type) == 8;
  const Execute execute = is_long ? (all ? &run_match<U64, true> : &run_match<U64, false>)
                                  : (all ? &run_match<U32, true> : &run_match<U32, false>);
  return {.execute = execute, .types = {PtxType::B32, type, PtxType::B32}};
}

Choice choose_reduction(Modifiers& modifiers) {
  if (!modifiers.take("sync")) return {};
  constexpr std::string_view kinds[] = {"add", "min", "max", "and", "or", "xor"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!modifiers.take(kinds[i])) continue;
    const PtxType type = modifiers.take_type();
    if (size_of(type) != 4 || type == PtxType::F32) return {};
    return {.execute = type == PtxType::S32 ? &run_reduction<std::int32_t> : &run_reduction<U32>,
            .types = {type, type, PtxType::B32},
            .variant = static_cast<std::uint8_t>(i)};
  }
  return {};
}

}  // namespace

Choice choose_warp_function(std::string_view opcode, Modifiers& modifiers) {
  if (opcode == "shfl") return choose_shuffle(modifiers);
  if (opcode == "vote") return choose_vote(modifiers);
  if (opcode == "match") return choose_match(modifiers);
  if (opcode == "redux") return choose_reduction(modifiers);
  if (opcode == "activemask" && modifiers.take_type() == PtxType::B32) {
    return {.execute = &run_active_lanes, .types = {PtxType::B32}};
  }
  if (opcode == "bar" && modifiers.take("warp") && modifiers.take("sync")) {
    return {.execute = &run_nothing, .types = {PtxType::B32}};
  }
  return {};
}

}  // namespace cuvmm::sim
