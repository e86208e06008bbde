// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/saved_frames.hpp"

#include <algorithm>
#include <cstring>

#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {
namespace {

Size bytes_of(const SavedFrame& frame) {
  return (frame.end_register - frame.first_register) * sizeof(std::uint64_t) +
         (frame.end_local - frame.first_local);
}

const SavedFrame& frame_of(Warp& warp, const Instruction& instruction) {
  return warp.block().program().saved_frames[instruction.first];
}

std::uint64_t register_of(Warp& warp, const ListedOperand& one, unsigned lane) {
  if (one.width == 0) return (warp.predicate(one.at) >> lane) & 1;
  return warp.read(one.at, one.width, lane);
}

void set_register(Warp& warp, const ListedOperand& one, unsigned lane, std::uint64_t value) {
  if (one.width == 0) {
    const std::uint32_t bit = 1U << lane;
    warp.set_predicate(one.at, bit, value != 0 ? bit : 0);
  } else {
    warp.write(one.at, one.width, lane, value);
  }
}

}  // namespace

void run_save_frame(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const SavedFrame& frame = frame_of(warp, instruction);
  const auto& registers = warp.block().program().registers;
  each_lane(lanes, [&](unsigned lane) {
    auto& saved = warp.block().saved(warp, lane);
    saved.resize(saved.size() + bytes_of(frame));
    std::byte* to = saved.data() + saved.size() - bytes_of(frame);
    for (std::size_t i = frame.first_register; i < frame.end_register; ++i) {
      const std::uint64_t value = register_of(warp, registers[i], lane);
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    }
    std::memcpy(to, warp.block().local_begin(warp, lane) + frame.first_local,
                frame.end_local - frame.first_local);
  });
}

void run_restore_frame(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const SavedFrame& frame = frame_of(warp, instruction);
  const auto& registers = warp.block().program().registers;
  const auto result_bytes = static_cast<std::size_t>(instruction.immediate);
  each_lane(lanes, [&](unsigned lane) {
    std::byte* local = warp.block().local_begin(warp, lane);
    std::byte result[most_saved_result_bytes];
    if (result_bytes != 0) std::memcpy(result, local + instruction.a, result_bytes);
    auto& saved = warp.block().saved(warp, lane);
    const std::byte* from = saved.data() + saved.size() - bytes_of(frame);
    for (std::size_t i = frame.first_register; i < frame.end_register; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, from, sizeof value);
      from += sizeof value;
      set_register(warp, registers[i], lane, value);
    }
    std::memcpy(local + frame.first_local, from, frame.end_local - frame.first_local);
    saved.resize(saved.size() - bytes_of(frame));
    if (result_bytes != 0) std::memcpy(local + instruction.d, result, result_bytes);
  });
}

void run_expect_callable(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto& callable = warp.block().program().callable[instruction.first];
  const auto* pointers = warp.lanes_of<std::uint64_t>(instruction.a);
  each_lane(lanes, [&](unsigned lane) {
    if (std::find(callable.begin(), callable.end(), pointers[lane]) != callable.end()) return;
    fail_kernel(
        warp, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        "a call through a pointer to no function of this signature, or to one that is running",
        pointers[lane]);
  });
}

void run_is_meant(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto* pointers = warp.lanes_of<std::uint64_t>(instruction.a);
  std::uint32_t chosen = all_lanes;
  if (instruction.c != no_operand) {
    chosen = instruction.c_negated ? ~warp.predicate(instruction.c) : warp.predicate(instruction.c);
  }
  std::uint32_t meant = 0;
  each_lane(lanes & chosen, [&](unsigned lane) {
    if (pointers[lane] == static_cast<std::uint64_t>(instruction.immediate)) meant |= 1U << lane;
  });
  warp.set_predicate(instruction.d, lanes, meant);
}

}  // namespace cuvmm::sim
