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

// Up to 32 threads that execute in lockstep. Diverged lanes form groups, one per program counter;
// the group that is furthest back runs first, so that the lanes reconverge.
class Warp {
 public:
  Warp(ThreadBlock& block, std::byte* registers, unsigned number, std::uint32_t lanes);

  enum class State : std::uint8_t { Waiting, OutOfTime, Done };
  // Runs until all lanes wait at a barrier or have exited, or for this many instructions.
  State run(std::uint64_t instructions);

  template <class Value>
  Value* lanes_of(std::uint32_t operand) {
    return reinterpret_cast<Value*>(registers_ + operand);
  }
  std::uint32_t& predicate(std::uint32_t operand) {
    return *reinterpret_cast<std::uint32_t*>(registers_ + operand);
  }
  // Access a lane of a register of 2, 4 or 8 bytes.
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
  std::uint32_t carry = 0;  // one bit per lane

  // Releases the lanes that wait at this barrier, and writes the barrier's result to them.
  void release(unsigned barrier, std::uint64_t result);
  bool can_run() const { return (living_ & ~barred_) != 0; }

  // For fault reports.
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
  // Stores the program counter of each lane of the group.
  void scatter();

  static constexpr std::uint32_t nowhere = 0xffffffff;
  static constexpr unsigned deepest_call = 512;

  ThreadBlock& block_;
  std::byte* const registers_;
  const unsigned number_;
  std::uint32_t living_;
  std::uint32_t group_ = 0;   // the running lanes, all at pc_
  std::uint32_t barred_ = 0;  // waiting at a barrier of the block
  std::uint32_t parked_ = 0;  // waiting for other lanes of this warp
  std::uint32_t pc_ = 0;
  std::uint32_t meet_ = nowhere;  // where the nearest other group waits to reconverge
  unsigned turns_ = 0;
  std::array<std::uint32_t, warp_size> at_{};  // program counters of lanes outside the group
  std::array<std::uint8_t, warp_size> barrier_{};
  std::array<std::uint16_t, warp_size> depth_{};
  // Not cleared for each block: entries beyond a lane's depth are never read.
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
