// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "alloc/memory.hpp"
#include "stream/call_barrier.hpp"
#include "support/driver_under_test.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {

// The memory of a program, and what it stands on, without the engine.
struct ServedMemory {
  ServedMemory(const Driver& driver, const MemorySettings& settings) {
    clock.emplace(driver, unseen_program(captures, gate));
    memory.emplace(
        Memory::Dependencies{driver, *clock, captures, gate, submission_epoch, [] { return true; }},
        settings);
  }
  ServedMemory(const ServedMemory&) = delete;
  ServedMemory& operator=(const ServedMemory&) = delete;

  Captures captures;
  Gate gate;
  SubmissionEpoch submission_epoch;
  CallBarrier calls{CallBarrier::Of::Calls};
  std::optional<StreamClock> clock;
  std::optional<Memory> memory;
};

// Work on a stream of its own that runs until let_end() or end() is called.
class EndlessWork {
 public:
  EndlessWork(const Driver& driver, ServedMemory& program) {
    GIVEN(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    (void)program.clock->table().find(StreamName{stream_, false});
    GIVEN(driver.cuLaunchHostFunc(
        stream_,
        [](void* ends) {
          while (!static_cast<std::atomic<bool>*>(ends)->load()) {
            std::this_thread::sleep_for(std::chrono::microseconds{50});
          }
        },
        &ends_));
    program.submission_epoch.leave();
  }
  void let_end(const Driver& driver) {
    ends_ = true;
    GIVEN(driver.cuStreamSynchronize(stream_));
  }
  // Ends the stream as well. The program does not learn of that.
  void end(const Driver& driver) {
    let_end(driver);
    GIVEN(driver.cuStreamDestroy(stream_));
  }

 private:
  CUstream stream_ = nullptr;
  std::atomic<bool> ends_{false};
};

}  // namespace cuvmm::test
