// SPDX-License-Identifier: Apache-2.0
// Queries about pointers that are not device memory, about several attributes at once, and about
// how much memory there is.
#include <array>

#include "query_support.hpp"

namespace cuvmm::test {
namespace {

class AskedAboutPointer : public DriverContract {};

CUresult ask_all(std::vector<CUpointer_attribute> which, std::vector<void*> into,
                 CUdeviceptr address) {
  return driver().cuPointerGetAttributes(static_cast<unsigned>(which.size()), which.data(),
                                         into.data(), address);
}

TEST_F(AskedAboutPointer, HostMemoryOfTheDriversIsHostMemory) {
  void* bytes = nullptr;
  GIVEN(driver().cuMemHostAlloc(&bytes, 1 * MiB, 0));
  const auto address = reinterpret_cast<CUdeviceptr>(bytes);
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 4096),
            unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 4096), address + 4096);
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4096), address + 4096);
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), false);
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 4096), address);
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 4096), 1 * MiB);
  EXPECT_CUDA(driver().cuMemFreeHost(bytes));
}

TEST_F(AskedAboutPointer, RegisteredMemoryIsHostMemory) {
  std::vector<std::byte> bytes(1 * MiB);
  GIVEN(driver().cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_DEVICEMAP));
  const auto address = reinterpret_cast<CUdeviceptr>(bytes.data());
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 512),
            unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 512), address + 512);
  EXPECT_CUDA(driver().cuMemHostUnregister(bytes.data()));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                answer_of(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 512));
}

TEST_F(AskedAboutPointer, ManagedMemoryIsDeviceMemoryThatTheHostReachesToo) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  CUdeviceptr address = 0;
  GIVEN(driver().cuMemAllocManaged(&address, 1 * MiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(asked<bool>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), true);
  EXPECT_EQ(asked<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address), address);
  EXPECT_EQ(asked(CU_POINTER_ATTRIBUTE_HOST_POINTER, address), address);
  EXPECT_CUDA(driver().cuMemFree(address));
}

TEST_F(AskedAboutPointer, UnknownIsRefused) {
  int on_the_stack = 0;
  const auto unknown = reinterpret_cast<CUdeviceptr>(&on_the_stack);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_CONTEXT, unknown));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_IS_MANAGED, unknown));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_BUFFER_ID, unknown));
}

TEST_F(AskedAboutPointer, FreedIsUnknown) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  auto block = given_blocking(4 * MiB);
  const CUdeviceptr address = block.address();
  GIVEN(block.free());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, answer_of(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

TEST_F(AskedAboutPointer, ReservedAddressesWithoutMemoryAreUnknown) {
  auto reserved = given_reservation(4 * MiB);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                answer_of(CU_POINTER_ATTRIBUTE_MAPPED, reserved.address()));
}

TEST_F(AskedAboutPointer, AnUnknownAttributeIsRefused) {
  auto block = given_blocking(1024);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                answer_of(static_cast<CUpointer_attribute>(999), block.address()));
}

TEST_F(AskedAboutPointer, WithoutAnOutputIsRefused) {
  auto block = given_blocking(1024);
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_VALUE,
      driver().cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block.address()));
}

TEST_F(AskedAboutPointer, ManyAttributesAtOnceMatchSingleQueries) {
  auto block = given_blocking(8 * MiB);
  unsigned type = 0;
  CUcontext context = nullptr;
  CUdeviceptr begin = 0;
  size_t size = 0;
  int ordinal = -1;
  ASSERT_CUDA(ask_all({CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
                      {&type, &context, &begin, &size, &ordinal}, block.address() + 1 * MiB));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(context, primary());
  EXPECT_EQ(begin, block.address());
  EXPECT_EQ(size, 8 * MiB);
  EXPECT_EQ(ordinal, 0);
}

TEST_F(AskedAboutPointer, ABatchedQueryOfAnUnknownPointerIsAllZero) {
  int on_the_stack = 0;
  unsigned type = 77;
  CUdeviceptr on_device = 77;
  CUcontext context = reinterpret_cast<CUcontext>(&on_the_stack);
  ASSERT_CUDA(ask_all({CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                       CU_POINTER_ATTRIBUTE_CONTEXT},
                      {&type, &on_device, &context}, reinterpret_cast<CUdeviceptr>(&on_the_stack)));
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(on_device, 0u);
  EXPECT_EQ(context, nullptr);
}

TEST_F(AskedAboutPointer, ABatchedQueryOfNoAttributesIsRefused) {
  auto block = given_blocking(1024);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuPointerGetAttributes(0, nullptr, nullptr, block.address()));
}

TEST_F(AskedAboutPointer, UnknownHasNoAddressRange) {
  int on_the_stack = 0;
  CUdeviceptr begin = 0;
  size_t size = 0;
  EXPECT_ANSWER(
      CUDA_ERROR_NOT_FOUND,
      driver().cuMemGetAddressRange(&begin, &size, reinterpret_cast<CUdeviceptr>(&on_the_stack)));
}

class MemoryInformation : public DriverContract {};

TEST_F(MemoryInformation, NeverShowsMoreFreeThanThereIs) {
  const MemoryInfo info = memory_info();
  EXPECT_GT(info.free, 0u);
  EXPECT_LE(info.free, info.total);
}

TEST_F(MemoryInformation, ShowsTheDevicesTotal) {
  size_t whole = 0;
  ASSERT_CUDA(driver().cuDeviceTotalMem(&whole, device()));
  EXPECT_EQ(memory_info().total, whole);
}

TEST_F(MemoryInformation, CountsEveryKindOfMemory) {
  const Size free_before = memory_info().free;
  {
    auto blocking = given_blocking(32 * MiB);
    auto chunk = given_chunk(32 * MiB);
    EXPECT_EQ(memory_info().free, free_before - 64 * MiB);
  }
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(MemoryInformation, CountsWhatAPoolHolds) {
  const Size free_before = memory_info().free;
  {
    GivenAsync async{64 * MiB};
    EXPECT_LE(memory_info().free, free_before - 64 * MiB);
  }
}

TEST_F(MemoryInformation, FreeAndTotalMayBeQueriedAlone) {
  size_t free = 0;
  size_t total = 0;
  EXPECT_CUDA(driver().cuMemGetInfo(&free, nullptr));
  EXPECT_CUDA(driver().cuMemGetInfo(nullptr, &total));
  EXPECT_GT(free, 0u);
  EXPECT_GE(total, free);
}

}  // namespace
}  // namespace cuvmm::test
