// SPDX-License-Identifier: Apache-2.0
// Another party's preload library whose dlsym carries glibc's version, and which answers lookups of
// driver functions with its own or with those that the loader has bound for it.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "base/processor.h"
#include "driver/cuda.hpp"

namespace {

using Dlsym = void* (*)(void*, const char*);

Dlsym next_dlsym() {
  if (void* found = dlvsym(RTLD_NEXT, "dlsym", CUVMM_FIRST_GLIBC)) {
    return reinterpret_cast<Dlsym>(found);
  }
  std::abort();
}

CUresult (*next_free)(CUdeviceptr) = nullptr;

CUresult own_free(CUdeviceptr address) {
  return next_free(address);
}

}  // namespace

extern "C" __attribute__((weak)) CUresult cuGetProcAddress_v2(const char*, void**, int, cuuint64_t,
                                                              CUdriverProcAddressQueryResult*);

extern "C" __attribute__((visibility("default"))) void* dlsym(void* library, const char* name) {
  static const Dlsym next = next_dlsym();
  void* const found = next(library, name);
  if (found == nullptr || library == RTLD_NEXT || library == RTLD_DEFAULT) return found;
  if (std::strcmp(name, "cuMemFree_v2") == 0) {
    next_free = reinterpret_cast<decltype(next_free)>(found);
    return reinterpret_cast<void*>(&own_free);
  }
  void* const bound = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  return std::strcmp(name, "cuGetProcAddress_v2") == 0 && bound != nullptr ? bound : found;
}
