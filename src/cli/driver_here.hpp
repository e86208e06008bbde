// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cuvmm::cli {

struct DriverHere {
  bool is_there = false;
  std::string load_error;  // if there is a libcuda.so.1 that cannot be loaded
};

// Looks for this machine's CUDA driver.
DriverHere find_driver();
inline bool has_driver() {
  return find_driver().is_there;
}

}  // namespace cuvmm::cli
