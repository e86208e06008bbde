// SPDX-License-Identifier: Apache-2.0
#include "cli/driver_here.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <initializer_list>

namespace cuvmm::cli {

// Checks the device files first, since opening the driver takes milliseconds.
bool has_driver() {
  for (const char* device : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu"}) {
    if (access(device, F_OK) == 0) return true;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

}  // namespace cuvmm::cli
