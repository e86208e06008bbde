// SPDX-License-Identifier: Apache-2.0
// A driver newer than cuvmm: the simulated one (libcuda.so.2) and a function that no list of
// cuvmm's names. Its cuCtxSynchronize sleeps in poll(), where a thread can be cancelled.
#include <cuda.h>
#include <dlfcn.h>
#include <poll.h>

#include "base/processor.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using Dlsym = void*(void*, const char*);

// Finds what a preload library cannot replace.
Dlsym* find_own_dlsym() {
  void* const library = dlopen("libc.so.6", RTLD_LAZY);
  void* found = dlvsym(library, "dlsym", "GLIBC_2.34");
  if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", CUVMM_FIRST_GLIBC);
  return reinterpret_cast<Dlsym*>(found);
}

template <class Function>
Function* of_the_older(const char* symbol) {
  static Dlsym* const own_dlsym = find_own_dlsym();
  static void* const older = dlopen("libcuda.so.2", RTLD_LAZY);
  return reinterpret_cast<Function*>(own_dlsym(older, symbol));
}

}  // namespace

EXPORTED CUresult cuFutureSetAsync(CUdeviceptr address, unsigned char value, size_t size,
                                   CUstream stream) {
  static auto* const set = of_the_older<decltype(cuMemsetD8Async)>("cuMemsetD8Async");
  return set(address, value, size, stream);
}

EXPORTED CUresult cuCtxSynchronize() {
  static auto* const query = of_the_older<decltype(cuStreamQuery)>("cuStreamQuery");
  static auto* const wait = of_the_older<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
  while (query(nullptr) == CUDA_ERROR_NOT_READY) poll(nullptr, 0, 10);
  return wait();
}
