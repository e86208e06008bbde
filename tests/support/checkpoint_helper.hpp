// SPDX-License-Identifier: Apache-2.0
// A process that locks, checkpoints, restores and unlocks another one, as cuda-checkpoint does.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "driver/cuda.hpp"
#include "support/child.hpp"

namespace cuvmm::test {

class CheckpointHelper {
 public:
  explicit CheckpointHelper(const std::vector<std::string>& environment = {});

  struct State {
    CUresult answer = CUDA_ERROR_UNKNOWN;
    CUprocessState state = CU_PROCESS_STATE_FAILED;
  };
  State read_state(pid_t process) { return ask<State>(Step::GetState, process, 0); }
  CUprocessState state(pid_t process) { return read_state(process).state; }

  CUresult lock(pid_t process, unsigned timeout_ms = 40'000) {
    return ask<CUresult>(Step::Lock, process, timeout_ms);
  }
  CUresult checkpoint(pid_t process) { return ask<CUresult>(Step::Checkpoint, process, 0); }
  CUresult restore(pid_t process) { return ask<CUresult>(Step::Restore, process, 0); }
  CUresult unlock(pid_t process) { return ask<CUresult>(Step::Unlock, process, 0); }

  Child& child() { return child_; }

  enum class Step : std::uint8_t { GetState, Lock, Checkpoint, Restore, Unlock };
  struct Request {
    Step step;
    pid_t process;
    unsigned timeout_ms;
  };

 private:
  template <class Answer>
  Answer ask(Step step, pid_t process, unsigned timeout_ms) {
    child_.link().send(Request{step, process, timeout_ms});
    return child_.link().receive<Answer>();
  }

  Child child_;
};

}  // namespace cuvmm::test
