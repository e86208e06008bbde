// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/lane_moves.hpp"

#include <ctime>

#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {
namespace {

std::uint64_t mask_of(unsigned bytes) {
  return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
}

}  // namespace

void run_pack(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const ListedOperand* list = warp.block().program().operands.data() + instruction.first;
  const unsigned part = instruction.variant;
  each_lane(lanes, [&](unsigned lane) {
    std::uint64_t whole = 0;
    for (unsigned i = 0; i < instruction.count; ++i) {
      if (list[i].at == no_operand) continue;
      whole |= (warp.read(list[i].at, list[i].width, lane) & mask_of(part)) << (8 * part * i);
    }
    warp.write(instruction.a, instruction.width_a, lane, whole);
  });
}

void run_unpack(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const ListedOperand* list = warp.block().program().operands.data() + instruction.first;
  const unsigned part = instruction.variant;
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t whole = warp.read(instruction.a, instruction.width_a, lane);
    for (unsigned i = 0; i < instruction.count; ++i) {
      if (list[i].at == no_operand) continue;
      warp.write(list[i].at, list[i].width, lane, (whole >> (8 * part * i)) & mask_of(part));
    }
  });
}

void run_read_clock(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::uint64_t ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                           static_cast<std::uint64_t>(now.tv_nsec);
  each_lane(lanes,
            [&](unsigned lane) { warp.write(instruction.d, instruction.width_d, lane, ns); });
}

}  // namespace cuvmm::sim
