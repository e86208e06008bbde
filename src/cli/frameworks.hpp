// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cuvmm::cli {

// Makes PyTorch and JAX request stream-ordered memory from the driver, which cuvmm serves, instead
// of using their own caches. Leaves variables that are already set. Returns one line for each
// framework on what was done and what that means for PyTorch's own tools.
std::vector<std::string> let_frameworks_use_the_driver();

// Watches a running program to detect PyTorch with its own cache in use.
class FrameworkWatch {
 public:
  // Watches only if the user has not chosen an allocator for PyTorch.
  FrameworkWatch();
  bool is_needed() const { return is_needed_ && !found_; }
  void look_at(pid_t process);

  // One line of advice; empty if nothing was detected.
  std::string suggestion() const;

 private:
  bool is_needed_;
  bool found_ = false;
};

}  // namespace cuvmm::cli
