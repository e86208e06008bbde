// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "sim/cuda.hpp"
#include "sim/interpreter/program.hpp"

namespace cuvmm::sim {

class ThreadBlock;

// Up to 32 threads that run one instruction at a time. Lanes at the same instruction run together;
// of several groups the one that is furthest back goes first, so that they meet again.
class Warp {
 public:
  Warp(ThreadBlock& block, std::byte* registers, unsigned number, std::uint32_t lanes);

  enum class State : std::uint8_t { Waiting, OutOfTime, Done };
  // Until all lanes wait at a barrier, have ended, or `instructions` have been run.
  State run(std::uint64_t instructions);

  template <class Value>
  Value* lanes_of(std::uint32_t operand) {
    return reinterpret_cast<Value*>(registers_ + operand);
  }
  std::uint32_t& predicate(std::uint32_t operand) {
    return *reinterpret_cast<std::uint32_t*>(registers_ + operand);
  }
  // Of 2, 4 or 8 bytes.
  std::uint64_t read(std::uint32_t operand, unsigned width, unsigned lane) const {
    const std::byte* lanes = registers_ + operand;
    if (width == 4) return reinterpret_cast<const std::uint32_t*>(lanes)[lane];
    if (width == 8) return reinterpret_cast<const std::uint64_t*>(lanes)[lane];
    return reinterpret_cast<const std::uint16_t*>(lanes)[lane];
  }
  void write(std::uint32_t operand, unsigned width, unsigned lane, std::uint64_t value) {
    std::byte* lanes = registers_ + operand;
    if (width == 4) {
      reinterpret_cast<std::uint32_t*>(lanes)[lane] = static_cast<std::uint32_t>(value);
    } else if (width == 8) {
      reinterpret_cast<std::uint64_t*>(lanes)[lane] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(lanes)[lane] = static_cast<std::uint16_t>(value);
    }
  }
  void set_predicate(std::uint32_t operand, std::uint32_t lanes, std::uint32_t value) {
    std::uint32_t& now = predicate(operand);
    now = (now & ~lanes) | (value & lanes);
  }

  ThreadBlock& block() { return block_; }
  unsigned number() const { return number_; }
  std::uint32_t living() const { return living_; }
  std::uint32_t group() const { return group_; }
  std::uint32_t carry = 0;  // a bit a lane

  // The lanes wait at this barrier no more; what it computed is written where they want it.
  void release(unsigned barrier, std::uint64_t result);
  bool can_run() const { return (living_ & ~barred_) != 0; }

  // For reports of a fault.
  const Instruction& current() const;
  volatile unsigned lane_now = 0;
  volatile std::uint64_t address_now = 0;

 private:
  void regroup();
  void take_turns();
  void branch(const Instruction& instruction, std::uint32_t lanes);
  void branch_by_table(const Instruction& instruction, std::uint32_t lanes);
  void call(const Instruction& instruction, std::uint32_t lanes);
  void leave_function(std::uint32_t lanes);
  void end(std::uint32_t lanes);
  void wait_at_barrier(const Instruction& instruction, std::uint32_t lanes);
  bool gather(const Instruction& instruction, std::uint32_t lanes);
  // Lanes of the group go on at different places.
  void scatter();

  static constexpr std::uint32_t nowhere = 0xffffffff;
  static constexpr unsigned deepest_call = 32;

  ThreadBlock& block_;
  std::byte* const registers_;
  const unsigned number_;
  std::uint32_t living_;
  std::uint32_t group_ = 0;   // the lanes that run now, all at pc_
  std::uint32_t barred_ = 0;  // at a barrier of the block
  std::uint32_t parked_ = 0;  // waiting for lanes of this warp
  std::uint32_t pc_ = 0;
  std::uint32_t meet_ = nowhere;  // where other lanes wait to be met
  unsigned turns_ = 0;
  std::array<std::uint32_t, warp_size> at_{};  // of lanes that are not in the group
  std::array<std::uint8_t, warp_size> barrier_{};
  std::array<std::uint8_t, warp_size> depth_{};
  // Not cleared for each block: what lies beyond a lane's depth is never read.
  std::array<std::array<std::uint32_t, deepest_call>, warp_size> returns_;  // NOLINT
};

template <class Function>
void each_lane(std::uint32_t lanes, Function&& function) {
  if (lanes == all_lanes) {
    for (unsigned lane = 0; lane < warp_size; ++lane) function(lane);
  } else {
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
      function(static_cast<unsigned>(std::countr_zero(left)));
    }
  }
}

}  // namespace cuvmm::sim
