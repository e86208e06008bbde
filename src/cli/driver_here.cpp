// SPDX-License-Identifier: Apache-2.0
#include "cli/driver_here.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <initializer_list>
#include <string>

namespace cuvmm::cli {

// Checks the device files first, since opening the driver takes milliseconds.
DriverHere find_driver() {
  for (const char* device : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu"}) {
    if (access(device, F_OK) == 0) return {.is_there = true, .load_error = {}};
  }
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) {
    dlclose(driver);
    return {.is_there = true, .load_error = {}};
  }
  const char* const error = dlerror();
  const std::string why = error != nullptr ? error : "unknown error";
  const bool is_found = !why.starts_with("libcuda.so.1: cannot open shared object file: No such");
  return {.is_there = false, .load_error = is_found ? why : ""};
}

}  // namespace cuvmm::cli
