// SPDX-License-Identifier: Apache-2.0
// Uses NVML, closes it, and opens a library (FILE) that is linked to it, while something else lies
// where NVML was. Prints the device memory that each of the two sees, in MiB.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdio>

namespace {

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

template <class Function>
Function* found(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == nullptr) return 3;
  void* device = nullptr;
  Memory memory{};
  found<int()>(nvml, "nvmlInit_v2")();
  found<int(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2")(0, &device);
  found<int(void*, Memory*)>(nvml, "nvmlDeviceGetMemoryInfo")(device, &memory);
  found<int()>(nvml, "nvmlShutdown")();
  std::printf("program %llu\n", memory.total >> 20);

  link_map* place = nullptr;
  dlinfo(nvml, RTLD_DI_LINKMAP, &place);
  void* const base = reinterpret_cast<void*>(place->l_addr);
  dlclose(nvml);
  // Fails if NVML is still there.
  static_cast<void>(
      mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));

  void* const plugin = dlopen(words[1], RTLD_NOW);
  if (plugin == nullptr) return 4;
  const int answer = found<int(unsigned long long*)>(plugin, "total_by_nvml")(&memory.total);
  std::printf("plugin %llu (%d)\n", memory.total >> 20, answer);
  return 0;
}
