// SPDX-License-Identifier: Apache-2.0
// Another party's preload library: it counts calls of cuMemAlloc_v2 and forwards them by RTLD_NEXT.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>

extern "C" __attribute__((visibility("default"))) int cuMemAlloc_v2(unsigned long long* address,
                                                                    std::size_t size) {
  using Function = int (*)(unsigned long long*, std::size_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  if (next == nullptr || next == &cuMemAlloc_v2) {
    std::printf("interposer: nobody follows\n");
    return 999;
  }
  std::printf("interposer: %zu bytes\n", size);
  return next(address, size);
}
