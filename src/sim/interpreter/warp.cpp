// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/warp.hpp"

#include <algorithm>

#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {
namespace {

// Iterations after which a looping group yields to the other lanes of its warp: one of them may
// hold the lock that it spins on.
constexpr unsigned loops_before_turn = 256;

}  // namespace

Warp::Warp(ThreadBlock& block, std::byte* registers, unsigned number, std::uint32_t lanes)
    : block_(block), registers_(registers), number_(number), living_(lanes), group_(lanes) {
  pc_ = block.program().entry;
}

const Instruction& Warp::current() const {
  return block_.program().code[pc_];
}

Warp::State Warp::run(std::uint64_t instructions) {
  const Instruction* const code = block_.program().code.data();
  if (group_ == 0) regroup();
  while (group_ != 0) {
    if (instructions-- == 0) return State::OutOfTime;
    const Instruction& instruction = code[pc_];
    std::uint32_t lanes = group_;
    if (instruction.guard != no_operand) {
      const std::uint32_t chosen = predicate(instruction.guard);
      lanes &= instruction.guard_negated ? ~chosen : chosen;
    }
    switch (instruction.flow) {
      case Flow::Next:
        if (lanes != 0) instruction.execute(*this, instruction, lanes);
        ++pc_;
        break;
      case Flow::Converge:
        if (lanes != 0 && !gather(instruction, lanes)) continue;
        ++pc_;
        break;
      case Flow::Branch:
        branch(instruction, lanes);
        break;
      case Flow::BranchTable:
        branch_by_table(instruction, lanes);
        break;
      case Flow::Call:
        call(instruction, lanes);
        break;
      case Flow::Return:
        leave_function(lanes);
        break;
      case Flow::Exit:
        end(lanes);
        break;
      case Flow::Barrier:
        wait_at_barrier(instruction, lanes);
        break;
      case Flow::Trap:
        if (lanes != 0) {
          fail_kernel(*this, static_cast<unsigned>(std::countr_zero(lanes)),
                      CUDA_ERROR_LAUNCH_FAILED, "the kernel executed trap", 0);
        }
        ++pc_;
        break;
    }
    if (pc_ >= meet_) regroup();
  }
  if (living_ == 0) return State::Done;
  return State::Waiting;
}

void Warp::scatter() {
  each_lane(group_, [&](unsigned lane) { at_[lane] = pc_; });
}

// Selects the runnable lanes that are furthest back. Lanes that wait for others of the warp run
// only if no other lane can.
void Warp::regroup() {
  if (group_ != 0) scatter();
  std::uint32_t candidates = living_ & ~barred_ & ~parked_;
  if (candidates == 0) {
    candidates = parked_;
    parked_ = 0;
  }
  group_ = 0;
  meet_ = nowhere;
  if (candidates == 0) return;
  pc_ = nowhere;
  each_lane(candidates, [&](unsigned lane) { pc_ = std::min(pc_, at_[lane]); });
  each_lane(candidates, [&](unsigned lane) {
    if (at_[lane] == pc_) {
      group_ |= 1U << lane;
    } else {
      meet_ = std::min(meet_, at_[lane]);
    }
  });
}

// Lets the lanes that are behind run without reconverging until they loop as often themselves.
void Warp::take_turns() {
  turns_ = 0;
  scatter();
  const std::uint32_t others = living_ & ~barred_ & ~parked_ & ~group_;
  if (others == 0) return;
  pc_ = nowhere;
  each_lane(others, [&](unsigned lane) { pc_ = std::min(pc_, at_[lane]); });
  std::uint32_t group = 0;
  each_lane(others, [&](unsigned lane) {
    if (at_[lane] == pc_) group |= 1U << lane;
  });
  group_ = group;
  meet_ = nowhere;
}

void Warp::branch(const Instruction& instruction, std::uint32_t lanes) {
  const bool is_loop = instruction.target <= pc_;
  if (lanes == group_) {
    pc_ = instruction.target;
  } else if (lanes == 0) {
    ++pc_;
  } else {
    each_lane(lanes, [&](unsigned lane) { at_[lane] = instruction.target; });
    const std::uint32_t rest = group_ & ~lanes;
    each_lane(rest, [&](unsigned lane) { at_[lane] = pc_ + 1; });
    group_ = 0;
    regroup();
  }
  if (is_loop && group_ != (living_ & ~barred_ & ~parked_) && ++turns_ >= loops_before_turn) {
    take_turns();
  } else if (is_loop && meet_ == nowhere && group_ != (living_ & ~barred_ & ~parked_) &&
             turns_ == 0) {
    regroup();
  }
}

void Warp::branch_by_table(const Instruction& instruction, std::uint32_t lanes) {
  const auto& table = block_.program().branch_tables[instruction.target];
  const std::uint32_t* index = lanes_of<std::uint32_t>(instruction.a);
  each_lane(group_ & ~lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
  each_lane(lanes, [&](unsigned lane) {
    if (index[lane] >= table.size()) {
      fail_kernel(*this, lane, CUDA_ERROR_LAUNCH_FAILED, "a branch beyond its table", index[lane]);
    }
    at_[lane] = table[index[lane]];
  });
  group_ = 0;
  regroup();
}

void Warp::call(const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    if (depth_[lane] == deepest_call) {
      fail_kernel(*this, lane, CUDA_ERROR_LAUNCH_FAILED, "calls are nested too deeply", 0);
    }
    returns_[lane][depth_[lane]++] = pc_ + 1;
  });
  if (lanes == group_ && meet_ == nowhere) {
    pc_ = instruction.target;
    return;
  }
  each_lane(group_ & ~lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
  each_lane(lanes, [&](unsigned lane) { at_[lane] = instruction.target; });
  group_ = 0;
  regroup();
}

void Warp::leave_function(std::uint32_t lanes) {
  each_lane(group_ & ~lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
  std::uint32_t ended = 0;
  each_lane(lanes, [&](unsigned lane) {
    if (depth_[lane] == 0) {
      ended |= 1U << lane;
    } else {
      at_[lane] = returns_[lane][--depth_[lane]];
    }
  });
  group_ = 0;
  living_ &= ~ended;
  if (ended != 0) block_.thread_ended(static_cast<unsigned>(std::popcount(ended)));
  regroup();
}

void Warp::end(std::uint32_t lanes) {
  each_lane(group_ & ~lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
  group_ = 0;
  living_ &= ~lanes;
  if (lanes != 0) block_.thread_ended(static_cast<unsigned>(std::popcount(lanes)));
  regroup();
}

// variant: 0 sync, 1 arrive, 2 red.popc, 3 red.and, 4 red.or.
void Warp::wait_at_barrier(const Instruction& instruction, std::uint32_t lanes) {
  each_lane(group_ & ~lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
  if (lanes != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(lanes));
    const unsigned barrier =
        instruction.a == no_operand ? 0 : lanes_of<std::uint32_t>(instruction.a)[first];
    const unsigned expected =
        instruction.b == no_operand ? 0 : lanes_of<std::uint32_t>(instruction.b)[first];
    const std::uint32_t wanted =
        instruction.c == no_operand
            ? 0
            : (instruction.c_negated ? ~predicate(instruction.c) : predicate(instruction.c)) &
                  lanes;
    const auto threads = static_cast<unsigned>(std::popcount(lanes));
    const std::uint64_t contribution = instruction.variant == 3
                                           ? (wanted == lanes ? 0 : 1)
                                           : static_cast<unsigned>(std::popcount(wanted));
    each_lane(lanes, [&](unsigned lane) {
      at_[lane] = pc_;
      barrier_[lane] = static_cast<std::uint8_t>(barrier);
    });
    if (instruction.variant == 1) {
      each_lane(lanes, [&](unsigned lane) { at_[lane] = pc_ + 1; });
    } else {
      barred_ |= lanes;
    }
    group_ = 0;
    block_.arrive(*this, barrier, threads, expected, contribution);
  }
  group_ = 0;
  regroup();
}

void Warp::release(unsigned barrier, std::uint64_t result) {
  each_lane(barred_, [&](unsigned lane) {
    if (barrier_[lane] != barrier) return;
    const std::uint32_t bit = 1U << lane;
    barred_ &= ~bit;
    const Instruction& instruction = block_.program().code[at_[lane]++];
    if (instruction.variant == 2) write(instruction.d, 4, lane, result);
    if (instruction.variant == 3) set_predicate(instruction.d, bit, result == 0 ? bit : 0);
    if (instruction.variant == 4) set_predicate(instruction.d, bit, result != 0 ? bit : 0);
  });
}

// Returns false if lanes are missing: the group then waits, and other lanes run.
bool Warp::gather(const Instruction& instruction, std::uint32_t lanes) {
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  const std::uint32_t members =
      instruction.e == no_operand ? lanes : lanes_of<std::uint32_t>(instruction.e)[first];
  std::uint32_t waiting_here = 0;
  each_lane(parked_, [&](unsigned lane) {
    if (at_[lane] == pc_) waiting_here |= 1U << lane;
  });
  parked_ &= ~waiting_here;
  group_ |= waiting_here;
  lanes |= waiting_here;
  const std::uint32_t absent = members & living_ & ~group_;
  const bool somebody_else_can_run = (living_ & ~barred_ & ~parked_ & ~group_) != 0;
  if (absent != 0 && somebody_else_can_run) {
    scatter();
    parked_ |= group_;
    group_ = 0;
    regroup();
    return false;
  }
  instruction.execute(*this, instruction, lanes);
  return true;
}

}  // namespace cuvmm::sim
