// SPDX-License-Identifier: Apache-2.0
// Chunks of the host's memory, mapped at device addresses.
#include <algorithm>

#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size chunk_size = 4 * MiB;

class HostChunk : public DriverContract {
 protected:
  // The node nearest to the device; 0 if the host has only one.
  static CUmemAllocationProp nearest() {
    return chunk_properties(
        host_node_location(std::max(0, attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))));
  }
};

TEST_F(HostChunk, TakesNoDeviceMemory) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  const Size free_before = memory_info().free;
  auto chunk = given_chunk(chunk_size, nearest());
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(HostChunk, IsMemoryToCopiesAndKernels) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto mapped = given_mapped(1, chunk_size, nearest());
  fill_pattern(mapped.address(), chunk_size, 41);
  expect_pattern(mapped.address(), chunk_size, 41);
  ASSERT_CUDA(launch(kernels().fill, nullptr, mapped.address(), std::uint32_t{6},
                     static_cast<std::uint32_t>(chunk_size / 4)));
  ASSERT_CUDA(launch(kernels().add_one, nullptr, mapped.address(),
                     static_cast<std::uint32_t>(chunk_size / 4)));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(mapped.address() + chunk_size - 4), 7u);
}

TEST_F(HostChunk, AndADeviceChunkMayBackOneRange) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto reserved = given_reservation(2 * chunk_size);
  auto on_device = given_chunk(chunk_size);
  auto on_host = given_chunk(chunk_size, nearest());
  auto first = given_mapping(reserved.address(), on_device);
  auto second = given_mapping(reserved.address() + chunk_size, on_host);
  ASSERT_CUDA(set_access(reserved.address(), reserved.size()));
  fill_pattern(reserved.address(), reserved.size(), 42);
  ASSERT_CUDA(launch(kernels().add_one, nullptr, reserved.address(),
                     static_cast<std::uint32_t>(reserved.size() / 4)));
  ASSERT_CUDA(synchronize());
  fill_pattern(reserved.address() + chunk_size - 4096, 8192, 43);
  expect_pattern(reserved.address() + chunk_size - 4096, 8192, 43);
}

// Like a chunk of the device: at several addresses, which later requests may add.
TEST_F(HostChunk, HasSeveralAddressesAndAnAccessAtEach) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto reserved = given_reservation(4 * chunk_size);
  auto chunk = given_chunk(chunk_size, nearest());
  auto first = given_mapping(reserved.address(), chunk);
  ASSERT_CUDA(set_access(reserved.address(), chunk_size));
  fill_pattern(reserved.address(), chunk_size, 45);
  const CUdeviceptr other = reserved.address() + 2 * chunk_size;
  auto second = given_mapping(other, chunk);
  const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  unsigned long long flags = 0;
  ASSERT_CUDA(driver().cuMemGetAccess(&flags, &device, other));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_CUDA(set_access(other, chunk_size));
  ASSERT_CUDA(driver().cuMemGetAccess(&flags, &device, other));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  expect_pattern(other, chunk_size, 45);
}

// The driver says how long its mapping is, and not where it begins.
TEST_F(HostChunk, IsARangeWithoutABeginning) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto mapped = given_mapped(1, chunk_size, nearest());
  CUdeviceptr start = 0;
  std::size_t size = 0;
  ASSERT_CUDA(driver().cuMemGetAddressRange(&start, &size, mapped.address() + 5));
  EXPECT_EQ(start, 0u);
  EXPECT_EQ(size, chunk_size);
  CUdeviceptr pointer = 0;
  ASSERT_CUDA(driver().cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                             mapped.address() + 5));
  EXPECT_EQ(pointer, mapped.address() + 5);
}

TEST_F(HostChunk, HasTheReservationAsItsRange) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto reserved = given_reservation(2 * chunk_size);
  auto chunk = given_chunk(chunk_size, nearest());
  const CUdeviceptr second = reserved.address() + chunk_size;
  auto mapped = given_mapping(second, chunk);
  CUdeviceptr start = 0;
  std::size_t size = 0;
  ASSERT_CUDA(
      driver().cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, second));
  ASSERT_CUDA(driver().cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, second));
  EXPECT_EQ(start, reserved.address());
  EXPECT_EQ(size, 2 * chunk_size);
}

TEST_F(HostChunk, IsFoundByItsAddressAfterItsHandleWasReleased) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto reserved = given_reservation(chunk_size);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp wanted = nearest();
  ASSERT_CUDA(driver().cuMemCreate(&handle, chunk_size, &wanted, 0));
  ASSERT_CUDA(driver().cuMemMap(reserved.address(), chunk_size, 0, handle, 0));
  ASSERT_CUDA(driver().cuMemRelease(handle));
  ASSERT_CUDA(
      driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(reserved.address())));
  EXPECT_CUDA(driver().cuMemUnmap(reserved.address(), chunk_size));
  EXPECT_CUDA(driver().cuMemRelease(handle));
}

TEST_F(HostChunk, CanBeDereferencedOnceTheHostHasAccess) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto mapped = given_mapped(1, chunk_size, nearest());
  CUmemAccessDesc host{};
  host.location = nearest().location;
  host.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_CUDA(driver().cuMemSetAccess(mapped.address(), chunk_size, &host, 1));
  fill_pattern(mapped.address(), chunk_size, 44);
  ASSERT_CUDA(synchronize());
  EXPECT_TRUE(has_pattern(reinterpret_cast<const void*>(mapped.address()), chunk_size, 44));
}

TEST_F(HostChunk, RemembersItsLocation) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto chunk = given_chunk(chunk_size, nearest());
  CUmemAllocationProp found{};
  ASSERT_CUDA(driver().cuMemGetAllocationPropertiesFromHandle(&found, chunk.handle()));
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(found.location.id, nearest().location.id);
}

}  // namespace
}  // namespace cuvmm::test
