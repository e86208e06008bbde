// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "share/system_error.hpp"

namespace cuvmm::checkpoint {

// Excludes other processes of this user from taking the process off its devices, or bringing it
// back, while the result is open. The kernel releases the lock when its owner ends, however it
// ends. TimedOut if another process still has it at the deadline.
Result<std::vector<Fd>> lock_for_checkpoint(pid_t process, share::Deadline until);

}  // namespace cuvmm::checkpoint
