// SPDX-License-Identifier: Apache-2.0
// Built twice, as the first and the second of a chain of libraries that define the same function.
// Each prints its name and calls the next one through RTLD_NEXT.
#include <dlfcn.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) void say_who_is_there() {
  std::printf("%s\n", LINK_NAME);
  using Function = void (*)();
  const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "say_who_is_there"));
  if (next != nullptr) {
    next();
  } else {
    std::printf("nobody follows %s\n", LINK_NAME);
  }
}
