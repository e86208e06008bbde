// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.hpp"

namespace cuvmm {

// Holds new work back, so that what runs can be waited for. Passing an open gate costs a thread two
// stores of its own; closing it is what pays.
class Gate {
 public:
  Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // A call that gives the device work, from before it is decided until the driver has it. The
  // thread that closed the gate passes.
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate), outermost_(gate.enter()) {}
    ~Pass() {
      if (outermost_) gate_.leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
    bool outermost_;
  };

  // Closed until open(). Waits for the calls that have passed already; false, and open again, where
  // they have not come out when now_ns() is `until`. One thread at a time.
  bool close(std::uint64_t until);
  void open();

  // In the child.
  static void forget_after_fork();

 private:
  struct Thread;

  bool enter();
  void leave();
  bool all_are_out(std::uint64_t until);
  static Thread* this_thread();
  static void end_of_thread(void* thread);

  static std::atomic<Thread*>
      threads_;  // only added to; a record serves again when its thread ends

  Lock closing_{LockOrder::Gate};
  std::atomic<std::uint32_t> closed_{0};  // a futex
  std::atomic<Thread*> closer_{nullptr};
  bool has_membarrier_;
};

}  // namespace cuvmm
