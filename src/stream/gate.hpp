// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/lock.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// Blocks new submissions, so that running work can be drained.
class Gate {
 public:
  Gate() = default;

  // Wraps a call that submits device work, from before the decision to submit until the driver has
  // the work. The thread that closed the gate may enter.
  class Pass : private CallBarrier::Pass {
   public:
    [[gnu::always_inline]] explicit Pass(Gate& gate) : CallBarrier::Pass(gate.barrier_) {}
  };

  // Closes the gate until open(). Waits for the calls already inside; if any is still inside when
  // now_ns() reaches `until`, reopens and returns false. One thread at a time.
  bool close(std::uint64_t until);
  void open();

  // Call in a forked child.
  static void forget_after_fork() { CallBarrier::forget_after_fork(); }

 private:
  Lock closing_{LockOrder::Gate};
  CallBarrier barrier_{CallBarrier::Of::Work};
};

}  // namespace cuvmm
