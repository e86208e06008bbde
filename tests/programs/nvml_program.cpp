// SPDX-License-Identifier: Apache-2.0
// Asks NVML for a device's memory through every door: linked to it, by a path as pynvml does, and
// by whatever the loader finds first. With a number of MiB as an argument, asks again with that
// much allocated, and asks cuMemGetInfo too. Prints one line for each: "DOOR total free used" in
// MiB. Then allocates and frees half as much again, and prints what this process uses by each
// version of NVML's list of processes: "DOOR lists first second third" in MiB.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance;
  unsigned compute_instance;
};
using Ask = int(void*, Memory*);
using AskV2 = int(void*, MemoryV2*);

}  // namespace

extern "C" {
int nvmlInit_v2();
int nvmlDeviceGetHandleByIndex_v2(unsigned, void**);
int nvmlDeviceGetMemoryInfo(void*, Memory*);
int nvmlDeviceGetMemoryInfo_v2(void*, MemoryV2*);
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned*, Process*);
int nvmlDeviceGetComputeRunningProcesses_v2(void*, unsigned*, ProcessV2*);
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned*, ProcessV2*);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned*, ProcessV2*);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void*, unsigned*, ProcessV2*);
}

namespace {

void check(int answer, const char* what) {
  if (answer == 0) return;
  std::printf("%s answers %d\n", what, answer);
  std::exit(2);
}

void show(const char* door, unsigned long long total, unsigned long long free,
          unsigned long long used) {
  std::printf("%s %llu %llu %llu\n", door, total >> 20, free >> 20, used >> 20);
}

void ask_by(const char* door, void* device, void* ask, void* ask_v2) {
  Memory memory{};
  check(reinterpret_cast<Ask*>(ask)(device, &memory), door);
  show(door, memory.total, memory.free, memory.used);
  MemoryV2 second{};
  second.version = sizeof second | 2U << 24;
  check(reinterpret_cast<AskV2*>(ask_v2)(device, &second), door);
  const bool is_same = second.total == memory.total && second.free == memory.free &&
                       second.reserved + second.used == memory.used;
  if (!is_same) std::printf("%s says otherwise by its second version\n", door);
}

void ask_all(void* device) {
  ask_by("linked", device, reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo),
         reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo_v2));
  // The file itself, whichever path the loader found it under.
  void* const by_name = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  link_map* found = nullptr;
  check(by_name == nullptr || dlinfo(by_name, RTLD_DI_LINKMAP, &found) != 0 ? 1 : 0, "dlinfo");
  void* const by_path = dlopen(found->l_name, RTLD_NOW | RTLD_LOCAL);
  ask_by("path", device, dlsym(by_path, "nvmlDeviceGetMemoryInfo"),
         dlsym(by_path, "nvmlDeviceGetMemoryInfo_v2"));
  ask_by("default", device, dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"),
         dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo_v2"));
}

template <class Listed>
unsigned long long own_use(const char* door, void* device, void* list) {
  Listed all[64] = {};
  unsigned count = 64;
  check(reinterpret_cast<int (*)(void*, unsigned*, Listed*)>(list)(device, &count, all), door);
  for (unsigned i = 0; i < count; ++i) {
    if (all[i].pid == static_cast<unsigned>(getpid())) return all[i].used >> 20;
  }
  return 0;
}

void list_by(const char* door, void* device, void* first, void* second, void* third) {
  std::printf("%s lists %llu %llu %llu\n", door, own_use<Process>(door, device, first),
              own_use<ProcessV2>(door, device, second), own_use<ProcessV2>(door, device, third));
}

void list_all(void* device) {
  list_by("linked", device, reinterpret_cast<void*>(&nvmlDeviceGetComputeRunningProcesses),
          reinterpret_cast<void*>(&nvmlDeviceGetComputeRunningProcesses_v2),
          reinterpret_cast<void*>(&nvmlDeviceGetComputeRunningProcesses_v3));
  void* const by_path = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  for (void* const library : {by_path, RTLD_DEFAULT}) {
    list_by(library == by_path ? "path" : "default", device,
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses"),
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2"),
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
  }
  for (auto* const list :
       {&nvmlDeviceGetGraphicsRunningProcesses_v3, &nvmlDeviceGetMPSComputeRunningProcesses_v3}) {
    if (own_use<ProcessV2>("others", device, reinterpret_cast<void*>(list)) != 0) {
      std::printf("a list of other processes has this one\n");
    }
  }
}

template <class Function>
Function* driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

int main(int count, char** words) {
  void* device = nullptr;
  check(nvmlInit_v2(), "nvmlInit");
  check(nvmlDeviceGetHandleByIndex_v2(0, &device), "nvmlDeviceGetHandleByIndex");
  ask_all(device);
  if (count < 2) return 0;
  CUcontext context = nullptr;
  check(driver<CUresult(unsigned)>("cuInit")(0), "cuInit");
  check(driver<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&context, 0), "retain");
  check(driver<CUresult(CUcontext)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  CUdeviceptr address = 0;
  const auto size = static_cast<std::size_t>(std::atoi(words[1])) << 20;
  check(driver<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&address, size), "cuMemAlloc");
  ask_all(device);
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver<CUresult(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&free, &total), "info");
  show("driver", total, free, total - free);
  CUdeviceptr more = 0;
  check(driver<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&more, size / 2),
        "cuMemAlloc");
  check(driver<CUresult(CUdeviceptr)>("cuMemFree_v2")(more), "cuMemFree");
  list_all(device);
  return 0;
}
