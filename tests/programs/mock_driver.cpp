// SPDX-License-Identifier: Apache-2.0
// A library with functions of the driver and of NVML that is neither: a mock, or a client of a card
// elsewhere.
#include <dlfcn.h>

#include <cstddef>

#define MOCK extern "C" __attribute__((visibility("default")))

MOCK int cuInit(unsigned) {
  return 4242;
}
MOCK int cuMemAlloc_v2(unsigned long long* address, std::size_t) {
  *address = 0x77;
  return 0;
}
MOCK int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 5;
  return 0;
}
// What comes behind this library: nothing, without a driver.
MOCK bool mock_is_last() {
  return dlsym(RTLD_NEXT, "cuInit") == nullptr;
}
