// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/lock.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// Holds new work back, so that what runs can be waited for.
class Gate {
 public:
  Gate() = default;

  // A call that gives the device work, from before it is decided until the driver has it. The
  // thread that closed the gate passes.
  class Pass : private CallBarrier::Pass {
   public:
    explicit Pass(Gate& gate) : CallBarrier::Pass(gate.threshold_) {}
  };

  // Closed until open(). Waits for the calls that have passed already; false, and open again, where
  // they have not come out when now_ns() is `until`. One thread at a time.
  bool close(std::uint64_t until);
  void open();

  // In the child.
  static void forget_after_fork() { CallBarrier::forget_after_fork(); }

 private:
  Lock closing_{LockOrder::Gate};
  CallBarrier threshold_{CallBarrier::Of::Work};
};

}  // namespace cuvmm
