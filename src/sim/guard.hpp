// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <utility>

#include "base/size.hpp"

namespace cuvmm::sim {

// The simulation runs device code on host threads. A fault in it must become the device's sticky
// error instead of killing the program, so code that accesses views runs guarded.
class Guard {
 public:
  // Called once, before the first guarded work. Faults outside of guarded work go to the previous
  // handler.
  static void install();

  // Runs `work`. Returns false if it faulted; it is then abandoned without unwinding.
  template <class Work>
  static bool run(Work&& work) {
    Frame frame;
    frame.outer = outermost_;
    if (sigsetjmp(frame.back, 1) != 0) {
      outermost_ = frame.outer;
      return false;
    }
    outermost_ = &frame;
    std::forward<Work>(work)();
    outermost_ = frame.outer;
    return true;
  }

  // Abandons the innermost guarded work, as if it had faulted.
  [[noreturn]] static void abandon();

  // While it exists, guarded work that faults waits and then retries. Used to move bytes to another
  // file while work runs.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };

 private:
  struct Frame {
    Frame* outer;
    std::uint64_t pauses_seen = 0;
    sigjmp_buf back;
  };
  static void on_fault(int signal, siginfo_t* what, void* context);
  static thread_local Frame* outermost_;
};

}  // namespace cuvmm::sim
