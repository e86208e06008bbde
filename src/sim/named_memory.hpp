// SPDX-License-Identifier: Apache-2.0
// The memory that a copy or a set names: whether the access is allowed, and which work must wait
// for which. All measured on an H200 unless marked.
#pragma once

#include <cstdint>
#include <memory>

#include "base/size.hpp"
#include "sim/cuda.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

class Context;

enum class MemoryPlace : std::uint8_t {
  Device,
  Managed,
  Pinned,  // page-locked host memory, and chunks on the host
  Pageable,
};

enum class Use : std::uint8_t { CopySource, CopyTarget, SetTarget };

struct NamedMemory {
  MemoryPlace place = MemoryPlace::Device;
  int device = -1;  // where it is, if on a device
  bool sync_memops = false;
  std::weak_ptr<Context> owner;  // for blocking memory

  bool is_host() const { return place == MemoryPlace::Pinned || place == MemoryPlace::Pageable; }
};

// Returns CUDA_SUCCESS, or CUDA_ERROR_INVALID_VALUE if `device` may not use these bytes that way.
CUresult name_memory(CUdeviceptr address, Size size, int device, Use use, NamedMemory* named);

// Whether mappings that grant `who` this access cover all of the bytes.
bool is_granted(CUdeviceptr address, Size size, int who, Access access);

}  // namespace cuvmm::sim
