// SPDX-License-Identifier: Apache-2.0
// Another party's preload library that hooks dlsym in the usual way: with a C function that calls
// the next one. It prints how many driver functions were looked up through it.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/processor.h"

namespace {

using Dlsym = void* (*)(void*, const char*);
std::atomic<int> looked_up{0};

Dlsym next_dlsym() {
  for (const char* version : {"GLIBC_2.34", CUVMM_FIRST_GLIBC}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(found);
  }
  std::abort();
}

struct AtTheEnd {
  ~AtTheEnd() {
    if (std::getenv("NAIVE_DLSYM_TELLS") != nullptr) {
      std::fprintf(stderr, "naive dlsym: %s\n", looked_up > 0 ? "was asked" : "was not asked");
    }
  }
} at_the_end;

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* library, const char* name) {
  static const Dlsym next = next_dlsym();
  if (std::strncmp(name, "cuMem", 5) == 0) ++looked_up;
  return next(library, name);
}
