// SPDX-License-Identifier: Apache-2.0
// The three kinds of memory that the tests query, 8 MiB each, and shorthands for the queries.
#pragma once

#include <cstring>
#include <type_traits>

#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {

inline constexpr Size asked_size = 8 * MiB;
inline constexpr Size asked_offset = 3 * MiB;

// Allocated from a device's default pool, on its own stream.
class GivenAsync {
 public:
  explicit GivenAsync(Size size) : size_(size) {
    GIVEN(driver().cuMemAllocAsync(&address_, size, stream_));
    GIVEN(driver().cuStreamSynchronize(stream_));
  }
  ~GivenAsync() {
    EXPECT_CUDA(driver().cuMemFreeAsync(address_, stream_));
    EXPECT_CUDA(driver().cuStreamSynchronize(stream_));
  }
  GivenAsync(const GivenAsync&) = delete;
  GivenAsync& operator=(const GivenAsync&) = delete;
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }

 private:
  GivenStream stream_;
  CUdeviceptr address_ = 0;
  Size size_ = 0;
};

// Four chunks that can be exported and, where the device allows it, registered for RDMA.
inline GivenMapped given_asked_mapping() {
  CUmemAllocationProp properties = chunk_properties(device_location(), Exportable::Fd);
  if (attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0) {
    properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  return given_mapped(4, asked_size / 4, properties);
}

// Attributes are written in their own width; the remaining bytes stay 0.
template <class T = std::uint64_t>
T asked(CUpointer_attribute which, CUdeviceptr address) {
  std::uint64_t value = 0;
  EXPECT_CUDA(driver().cuPointerGetAttribute(&value, which, address));
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(value);
  } else {
    T narrowed{};
    std::memcpy(&narrowed, &value, sizeof narrowed);
    return narrowed;
  }
}

inline CUresult answer_of(CUpointer_attribute which, CUdeviceptr address) {
  std::uint64_t value = 0;
  return driver().cuPointerGetAttribute(&value, which, address);
}

struct AddressRange {
  CUdeviceptr begin = 0;
  size_t size = 0;
};
inline AddressRange address_range(CUdeviceptr address) {
  AddressRange range;
  EXPECT_CUDA(driver().cuMemGetAddressRange(&range.begin, &range.size, address));
  return range;
}

inline CUresult retain(CUdeviceptr address) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult answer =
      driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
  if (answer == CUDA_SUCCESS) {
    EXPECT_CUDA(driver().cuMemRelease(handle));
  }
  return answer;
}

inline CUresult set_sync_memops(CUdeviceptr address) {
  const unsigned on = 1;
  return driver().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
}

inline CUresult get_ipc_handle(CUdeviceptr address) {
  CUipcMemHandle handle{};
  return driver().cuIpcGetMemHandle(&handle, address);
}

// Whether the range can be exported as a dma-buf.
CUresult get_dma_buf(CUdeviceptr address, Size size);

}  // namespace cuvmm::test
