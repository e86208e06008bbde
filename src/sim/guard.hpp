// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <utility>

#include "base/size.hpp"

namespace cuvmm::sim {

// Device code of ours runs on host threads. A fault in it must end as the device's sticky error,
// not as the death of the program, so what touches views runs guarded.
class Guard {
 public:
  // Once, before the first guarded work. Other faults go to the previous handler.
  static void install();

  // Runs `work`; false if it faulted and was left where it stood.
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

  // Leaves the innermost guarded work, as if it had faulted.
  [[noreturn]] static void abandon();

  // While it lives, guarded work that faults waits and then tries again: for moving bytes to
  // another file under running work.
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
