// SPDX-License-Identifier: Apache-2.0
// Additions, subtractions and products that propagate a carry.
#include <type_traits>

#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

// An instruction's variant.
constexpr unsigned takes_carry = 1;
constexpr unsigned hands_carry_on = 2;

template <class T, bool subtracts>
void run_carrying(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<T>(instruction.d);
  const auto* a = warp.lanes_of<T>(instruction.a);
  const auto* b = warp.lanes_of<T>(instruction.b);
  const bool takes = (instruction.variant & takes_carry) != 0;
  const bool hands_on = (instruction.variant & hands_carry_on) != 0;
  each_lane(lanes, [&](unsigned lane) {
    const std::uint32_t bit = 1U << lane;
    const T carry_in = takes && (warp.carry & bit) != 0 ? 1 : 0;
    T sum = 0;
    bool carry = false;
    if constexpr (subtracts) {
      carry = __builtin_sub_overflow(a[lane], b[lane], &sum);
      carry |= __builtin_sub_overflow(sum, carry_in, &sum);
    } else {
      carry = __builtin_add_overflow(a[lane], b[lane], &sum);
      carry |= __builtin_add_overflow(sum, carry_in, &sum);
    }
    d[lane] = sum;
    if (hands_on) warp.carry = carry ? warp.carry | bit : warp.carry & ~bit;
  });
}

// d = a * b + c + carry, with the low or the high half of the product.
template <class T, bool high>
void run_carrying_product(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  using Plain = std::make_unsigned_t<T>;
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  auto* d = warp.lanes_of<Plain>(instruction.d);
  const auto* a = warp.lanes_of<T>(instruction.a);
  const auto* b = warp.lanes_of<T>(instruction.b);
  const auto* c = warp.lanes_of<Plain>(instruction.c);
  const bool takes = (instruction.variant & takes_carry) != 0;
  const bool hands_on = (instruction.variant & hands_carry_on) != 0;
  each_lane(lanes, [&](unsigned lane) {
    const std::uint32_t bit = 1U << lane;
    const Plain carry_in = takes && (warp.carry & bit) != 0 ? 1 : 0;
    const Wide product = static_cast<Wide>(a[lane]) * static_cast<Wide>(b[lane]);
    const auto half = static_cast<Plain>(high ? product >> bits_of<T> : product);
    Plain sum = 0;
    bool carry = __builtin_add_overflow(half, c[lane], &sum);
    carry |= __builtin_add_overflow(sum, carry_in, &sum);
    d[lane] = sum;
    if (hands_on) warp.carry = carry ? warp.carry | bit : warp.carry & ~bit;
  });
}

template <class T>
Execute product_of_half(bool high) {
  return high ? &run_carrying_product<T, true> : &run_carrying_product<T, false>;
}

Execute carrying_product(PtxType type, bool high) {
  switch (type) {
    case PtxType::U32:
      return product_of_half<U32>(high);
    case PtxType::S32:
      return product_of_half<S32>(high);
    case PtxType::U64:
      return product_of_half<U64>(high);
    case PtxType::S64:
      return product_of_half<S64>(high);
    default:
      return nullptr;
  }
}

Execute carrying_sum(PtxType type, bool subtracts) {
  if (size_of(type) == 8) return subtracts ? &run_carrying<U64, true> : &run_carrying<U64, false>;
  if (size_of(type) == 4) return subtracts ? &run_carrying<U32, true> : &run_carrying<U32, false>;
  return nullptr;
}

}  // namespace

Choice choose_carrying(std::string_view opcode, Modifiers& modifiers) {
  const Modifiers unchanged = modifiers;
  const bool multiplies = opcode == "mad" || opcode == "madc";
  const bool takes = opcode == "addc" || opcode == "subc" || opcode == "madc";
  const bool is_sum = opcode == "add" || opcode == "addc" || opcode == "sub" || opcode == "subc";
  if (!multiplies && !is_sum) return {};
  const bool hands_on = modifiers.take("cc");
  Choice choice;
  if (takes || hands_on) {
    choice.variant =
        static_cast<std::uint8_t>((takes ? takes_carry : 0) | (hands_on ? hands_carry_on : 0));
    if (multiplies) {
      const bool high = modifiers.take("hi");
      const bool low = modifiers.take("lo");
      const PtxType type = modifiers.take_type();
      choice.types = {type, type, type, type};
      if (high || low) choice.execute = carrying_product(type, high);
    } else {
      const PtxType type = modifiers.take_type();
      choice.types = {type, type, type};
      choice.execute = carrying_sum(type, opcode.substr(0, 3) == "sub");
    }
  }
  if (choice.execute == nullptr) modifiers = unchanged;
  return choice;
}

}  // namespace cuvmm::sim
