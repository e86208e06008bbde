// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_helper.hpp"

#include <poll.h>

#include "support/driver_under_test.hpp"

namespace cuvmm::test {
namespace {

using Step = CheckpointHelper::Step;

bool has_hung_up(const Link& link) {
  pollfd seen{.fd = link.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&seen, 1, -1) < 0 || (seen.revents & POLLIN) == 0;
}

CUresult act(const CheckpointHelper::Request& request) {
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = request.timeout_ms;
  switch (request.step) {
    case Step::Lock:
      return driver().cuCheckpointProcessLock(request.process, &lock);
    case Step::Checkpoint:
      return driver().cuCheckpointProcessCheckpoint(request.process, nullptr);
    case Step::Restore:
      return driver().cuCheckpointProcessRestore(request.process, nullptr);
    default:
      return driver().cuCheckpointProcessUnlock(request.process, nullptr);
  }
}

}  // namespace

// The driver needs no cuInit for these calls.
CHILD_ROLE(checkpoints) {
  link.signal();
  while (!has_hung_up(link)) {
    const auto request = link.receive<CheckpointHelper::Request>();
    if (request.step == Step::GetState) {
      CheckpointHelper::State seen;
      seen.answer = driver().cuCheckpointProcessGetState(request.process, &seen.state);
      link.send(seen);
    } else {
      link.send(act(request));
    }
  }
}

CheckpointHelper::CheckpointHelper(const std::vector<std::string>& environment)
    : child_("checkpoints", {}, environment) {
  child_.link().wait_for_signal();
}

}  // namespace cuvmm::test
