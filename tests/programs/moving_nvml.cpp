// SPDX-License-Identifier: Apache-2.0
// An NVML that is asked just as memory changes hands: process 7 releases 4 GiB of device 0, or
// takes 4 GiB of device 1, while its own use is read. It keeps 1 GiB of either.
#include <array>
#include <cstdint>

#define NVML extern "C" __attribute__((visibility("default")))

namespace {

constexpr unsigned long long gib = 1ULL << 30;

struct Device {
  unsigned long long used;
  unsigned long long used_later;
};
std::array<Device, 2> devices{{{5 * gib, gib}, {gib, 5 * gib}}};

struct Process {
  unsigned process;
  unsigned long long used;
  unsigned gpu_instance;
  unsigned compute_instance;
};

}  // namespace

NVML int nvmlInit_v2() {
  return 0;
}
NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = devices.size();
  return 0;
}
NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  *device = &devices[index];
  return 0;
}
NVML int nvmlDeviceGetUUID(Device*, char*, unsigned) {
  return 3;  // not supported
}
NVML int nvmlDeviceGetMemoryInfo(Device* device, unsigned long long* total_free_used) {
  total_free_used[0] = 8 * gib;
  total_free_used[1] = 8 * gib - device->used;
  total_free_used[2] = device->used;
  return 0;
}
NVML int nvmlDeviceGetComputeRunningProcesses_v3(Device* device, unsigned* count,
                                                 Process* processes) {
  *count = 1;
  processes[0] = {7, gib, 0, 0};
  device->used = device->used_later;
  return 0;
}
