// SPDX-License-Identifier: Apache-2.0
// dp4a and dp2a: sums of products of bytes.
#include "sim/interpreter/lane_arithmetic.hpp"
#include "sim/interpreter/lane_types.hpp"
#include "sim/interpreter/selection.hpp"

namespace cuvmm::sim {
namespace {

// An instruction's variant.
constexpr unsigned dot_a_is_signed = 1;
constexpr unsigned dot_b_is_signed = 2;
constexpr unsigned dot_takes_upper = 4;  // of b's bytes

U32 field(U32 word, unsigned index, unsigned bits, bool is_signed) {
  const U32 value = (word >> (index * bits)) & ((1U << bits) - 1);
  const U32 sign = 1U << (bits - 1);
  return is_signed && (value & sign) != 0 ? value - 2 * sign : value;
}

// Arithmetic modulo 2^32 is the same for signed and unsigned sums.
template <unsigned products>
void run_dot_product(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  auto* d = warp.lanes_of<U32>(instruction.d);
  const auto* a = warp.lanes_of<U32>(instruction.a);
  const auto* b = warp.lanes_of<U32>(instruction.b);
  const auto* c = warp.lanes_of<U32>(instruction.c);
  const unsigned variant = instruction.variant;
  const unsigned first = (variant & dot_takes_upper) != 0 ? 2 : 0;
  each_lane(lanes, [&](unsigned lane) {
    U32 sum = c[lane];
    for (unsigned i = 0; i < products; ++i) {
      sum += field(a[lane], i, 32 / products, (variant & dot_a_is_signed) != 0) *
             field(b[lane], first + i, 8, (variant & dot_b_is_signed) != 0);
    }
    d[lane] = sum;
  });
}

}  // namespace

Choice choose_dot_product(std::string_view opcode, Modifiers& modifiers) {
  if (opcode != "dp4a" && opcode != "dp2a") return {};
  unsigned variant = 0;
  if (opcode == "dp2a") {
    const bool upper = modifiers.take("hi");
    if (!upper && !modifiers.take("lo")) return {};
    if (upper) variant |= dot_takes_upper;
  }
  const PtxType a = modifiers.take_type();
  const PtxType b = modifiers.take_type();
  if ((a != PtxType::U32 && a != PtxType::S32) || (b != PtxType::U32 && b != PtxType::S32)) {
    return {};
  }
  if (a == PtxType::S32) variant |= dot_a_is_signed;
  if (b == PtxType::S32) variant |= dot_b_is_signed;
  return {.execute = opcode == "dp4a" ? &run_dot_product<4> : &run_dot_product<2>,
          .types = {PtxType::U32, a, b, PtxType::U32},
          .variant = static_cast<std::uint8_t>(variant)};
}

}  // namespace cuvmm::sim
