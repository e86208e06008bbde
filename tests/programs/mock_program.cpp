// SPDX-License-Identifier: Apache-2.0
// Uses the functions of libcuvmm_mock_driver, to which it is linked, and prints their answers.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>

extern "C" {
int cuInit(unsigned flags);
int cuMemAlloc_v2(unsigned long long* address, std::size_t size);
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used);
bool mock_is_last();
}

namespace {

void say_what_is_found(const char* scope, void* library) {
  void* const found = dlsym(library, "cuInit");
  const int answer = found != nullptr ? reinterpret_cast<int (*)(unsigned)>(found)(0) : -1;
  std::printf("found %s: %d\n", scope, answer);
}

}  // namespace

int main() {
  unsigned long long address = 0;
  unsigned long long memory[3] = {};
  std::printf("linked: %d\n", cuInit(0));
  const int allocated = cuMemAlloc_v2(&address, 1);
  std::printf("linked: %d %llx\n", allocated, address);
  const int told = nvmlDeviceGetMemoryInfo(nullptr, memory);
  std::printf("linked: %d %llu\n", told, memory[0]);
  say_what_is_found("by default", RTLD_DEFAULT);
  say_what_is_found("next", RTLD_NEXT);
  say_what_is_found("in the program", dlopen(nullptr, RTLD_NOW));
  std::printf("behind the library: %s\n", mock_is_last() ? "nothing" : "something");
}
