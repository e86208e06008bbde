// SPDX-License-Identifier: Apache-2.0
// Another party's preload library that follows the heap, as memory profilers do: it finds the real
// functions with dlsym(RTLD_NEXT), in the middle of the first allocation.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<long> allocations{0};

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

struct AtTheEnd {
  ~AtTheEnd() {
    if (std::getenv("MALLOC_HOOK_TELLS") == nullptr) return;
    std::fprintf(stderr, "malloc hook: %s\n", allocations > 10 ? "saw the heap" : "saw nothing");
  }
} at_the_end;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  static const auto next = next_of<void* (*)(std::size_t)>("malloc");
  ++allocations;
  return next(size);
}

__attribute__((visibility("default"))) void free(void* memory) {
  static const auto next = next_of<void (*)(void*)>("free");
  next(memory);
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  static const auto next = next_of<void* (*)(void*, std::size_t)>("realloc");
  ++allocations;
  return next(memory, size);
}

}  // extern "C"
