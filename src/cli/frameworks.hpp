// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cuvmm::cli {

// Sets, unless it is set, what makes PyTorch and JAX ask the driver for stream-ordered memory,
// which cuvmm serves, rather than keep memory in caches of their own. What was done, and what that
// means for PyTorch's own tools, in a line each.
std::vector<std::string> let_frameworks_use_the_driver();

// Notices a program that has brought PyTorch, with its own cache in use, while it runs.
class FrameworkWatch {
 public:
  // Whether there is something to watch for: nobody has chosen for PyTorch.
  FrameworkWatch();
  bool is_needed() const { return is_needed_ && !found_; }
  void look_at(pid_t process);

  // What could be done, in a line; empty where nothing was noticed.
  std::string suggestion() const;

 private:
  bool is_needed_;
  bool found_ = false;
};

}  // namespace cuvmm::cli
