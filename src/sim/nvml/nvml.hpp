// SPDX-License-Identifier: Apache-2.0
// The simulated part of NVML's binary interface, which is fixed. Declared here, as NVML's own
// header is not among our packages.
#pragma once

#include <cstdint>

namespace cuvmm::sim {

enum NvmlAnswer : std::uint32_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

struct NvmlMemory {
  std::uint64_t total;
  std::uint64_t free;
  std::uint64_t used;
};

struct NvmlMemoryV2 {
  std::uint32_t version;
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t free;
  std::uint64_t used;
};
inline constexpr std::uint32_t nvml_memory_version_2 = sizeof(NvmlMemoryV2) | (2U << 24);

struct NvmlProcessV1 {
  std::uint32_t pid;
  std::uint64_t used_bytes;
};
struct NvmlProcess {  // of versions 2 and 3
  std::uint32_t pid;
  std::uint64_t used_bytes;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
};
inline constexpr std::uint32_t nvml_no_instance = 0xffffffff;

using NvmlDevice = const struct NvmlDeviceEntry*;

}  // namespace cuvmm::sim
