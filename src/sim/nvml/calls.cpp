// SPDX-License-Identifier: Apache-2.0
// A small libnvidia-ml.so.1: the view of a card from outside.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "sim/device_identity.hpp"
#include "sim/nvml/nvml.hpp"
#include "sim/nvml/view.hpp"

#define CUVMM_NVML extern "C" [[gnu::visibility("default")]]

namespace cuvmm::sim {

struct NvmlDeviceEntry {
  int ordinal;
};

namespace {

std::atomic<int> initialized{0};

constexpr std::array<NvmlDeviceEntry, most_devices> entries = [] {
  std::array<NvmlDeviceEntry, most_devices> all{};
  for (int ordinal = 0; ordinal < most_devices; ++ordinal) {
    all[static_cast<std::size_t>(ordinal)].ordinal = ordinal;
  }
  return all;
}();

bool is_device(NvmlDevice device) {
  return device >= entries.data() && device < entries.data() + entries.size();
}

NvmlAnswer check(NvmlDevice device) {
  if (initialized.load() == 0) return NVML_ERROR_UNINITIALIZED;
  return is_device(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

std::array<char, 41> uuid_of(int number) {
  return uuid_text(device_uuid(settings().card.name, number));
}

NvmlAnswer write_text(char* to, std::uint32_t size, const char* text) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::size_t needed = std::strlen(text) + 1;
  if (size < needed) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, text, needed);
  return NVML_SUCCESS;
}

// `count` is the capacity on entry and the number of processes on return.
template <class Process>
NvmlAnswer list_processes(NvmlDevice device, std::uint32_t* count, Process* processes) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  if (count == nullptr || (*count != 0 && processes == nullptr)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  const auto view = view_of_device(device->ordinal);
  if (!view) return NVML_ERROR_UNKNOWN;
  const std::uint32_t room = *count;
  *count = static_cast<std::uint32_t>(view->processes.size());
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::transform(view->processes.begin(), view->processes.end(), processes,
                 [](const ProcessUse& use) {
                   Process process{};
                   process.pid = static_cast<std::uint32_t>(use.process);
                   process.used_bytes = use.held;
                   if constexpr (requires { process.gpu_instance; }) {
                     process.gpu_instance = process.compute_instance = nvml_no_instance;
                   }
                   return process;
                 });
  return NVML_SUCCESS;
}

NvmlAnswer list_no_processes(NvmlDevice device, std::uint32_t* count) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace cuvmm::sim

using namespace cuvmm::sim;  // NOLINT(google-build-using-namespace): these are C's names

CUVMM_NVML NvmlAnswer nvmlInit_v2() {
  initialized.fetch_add(1);
  return NVML_SUCCESS;
}

CUVMM_NVML NvmlAnswer nvmlShutdown() {
  int known = initialized.load();
  while (known > 0 && !initialized.compare_exchange_weak(known, known - 1)) {
  }
  return known > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

CUVMM_NVML const char* nvmlErrorString(NvmlAnswer answer) {
  switch (answer) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument Version Mismatch";
    default:
      return "Unknown Error";
  }
}

CUVMM_NVML NvmlAnswer nvmlSystemGetDriverVersion(char* version, std::uint32_t size) {
  if (initialized.load() == 0) return NVML_ERROR_UNINITIALIZED;
  return write_text(version, size, "580.0.simulated");
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetCount_v2(std::uint32_t* count) {
  if (initialized.load() == 0) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<std::uint32_t>(nvml_device_count());
  return NVML_SUCCESS;
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetHandleByIndex_v2(std::uint32_t index, NvmlDevice* device) {
  if (initialized.load() == 0) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= static_cast<std::uint32_t>(nvml_device_count())) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *device = &entries[index];
  return NVML_SUCCESS;
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice* device) {
  if (initialized.load() == 0) return NVML_ERROR_UNINITIALIZED;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (int ordinal = 0; ordinal < nvml_device_count(); ++ordinal) {
    if (std::strcmp(uuid_of(ordinal).data(), uuid) != 0) continue;
    *device = &entries[static_cast<std::size_t>(ordinal)];
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetUUID(NvmlDevice device, char* uuid, std::uint32_t size) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  return write_text(uuid, size, uuid_of(device->ordinal).data());
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetName(NvmlDevice device, char* name, std::uint32_t size) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  return write_text(name, size, device_name);
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto view = view_of_device(device->ordinal);
  if (!view) return NVML_ERROR_UNKNOWN;
  *memory = {.total = view->memory, .free = view->memory - view->used, .used = view->used};
  return NVML_SUCCESS;
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetMemoryInfo_v2(NvmlDevice device, NvmlMemoryV2* memory) {
  if (const NvmlAnswer refused = check(device); refused != NVML_SUCCESS) return refused;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != nvml_memory_version_2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const auto view = view_of_device(device->ordinal);
  if (!view) return NVML_ERROR_UNKNOWN;
  memory->total = view->memory;
  memory->reserved = 0;
  memory->free = view->memory - view->used;
  memory->used = view->used;
  return NVML_SUCCESS;
}

CUVMM_NVML NvmlAnswer nvmlDeviceGetComputeRunningProcesses(NvmlDevice device, std::uint32_t* count,
                                                           NvmlProcessV1* processes) {
  return list_processes(device, count, processes);
}
CUVMM_NVML NvmlAnswer nvmlDeviceGetComputeRunningProcesses_v2(NvmlDevice device,
                                                              std::uint32_t* count,
                                                              NvmlProcess* processes) {
  return list_processes(device, count, processes);
}
CUVMM_NVML NvmlAnswer nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device,
                                                              std::uint32_t* count,
                                                              NvmlProcess* processes) {
  return list_processes(device, count, processes);
}

// No process of a simulated card draws or uses MPS.
#define CUVMM_NO_PROCESSES(name, Process)                                         \
  CUVMM_NVML NvmlAnswer name(NvmlDevice device, std::uint32_t* count, Process*) { \
    return list_no_processes(device, count);                                      \
  }
CUVMM_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, NvmlProcessV1)
CUVMM_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, NvmlProcess)
CUVMM_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, NvmlProcess)
CUVMM_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, NvmlProcessV1)
CUVMM_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, NvmlProcess)
CUVMM_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, NvmlProcess)
