// SPDX-License-Identifier: Apache-2.0
// Physical memory by handle: cuMemCreate, its properties, its release.
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class ChunkOfMemory : public DriverContract {};

CUresult create(Size size, const CUmemAllocationProp& properties = chunk_properties(),
                unsigned long long flags = 0) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult answer = driver().cuMemCreate(&handle, size, &properties, flags);
  if (answer == CUDA_SUCCESS) {
    EXPECT_CUDA(driver().cuMemRelease(handle));
  }
  return answer;
}

// More memory than the card has, in an otherwise valid size: a card's memory need not be whole
// granules.
Size beyond_the_card() {
  return round_down(memory_info().total, granularity()) + granularity();
}

TEST_F(ChunkOfMemory, HasAGranularityOfTwoMebibytes) {
  const CUmemAllocationProp properties = chunk_properties();
  size_t minimum = 0;
  size_t recommended = 0;
  ASSERT_CUDA(driver().cuMemGetAllocationGranularity(&minimum, &properties,
                                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  ASSERT_CUDA(driver().cuMemGetAllocationGranularity(&recommended, &properties,
                                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_EQ(minimum, 2 * MiB);
  EXPECT_EQ(recommended, 2 * MiB);
}

TEST_F(ChunkOfMemory, TakesItsSizeFromFreeMemoryAndGivesItBack) {
  const Size free_before = memory_info().free;
  {
    auto chunk = given_chunk(64 * MiB);
    EXPECT_EQ(memory_info().free, free_before - 64 * MiB);
  }
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(ChunkOfMemory, OfNothingIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, create(0));
}

TEST_F(ChunkOfMemory, OfAnUnalignedSizeIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, create(granularity() + 4 * KiB));
}

TEST_F(ChunkOfMemory, BeyondTheCardIsOutOfMemory) {
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, create(beyond_the_card()));
}

TEST_F(ChunkOfMemory, LargerThanFreeMemoryIsOutOfMemory) {
  const Size most = round_down(memory_info().free, granularity());
  auto half = given_chunk(round_down(most / 2, granularity()));
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, create(most));
}

TEST_F(ChunkOfMemory, WhoseSizeOverflowsIsOutOfMemory) {
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, create(round_down(~Size{0}, granularity())));
}

TEST_F(ChunkOfMemory, RefusedLeavesFreeMemoryAsItWas) {
  const Size free_before = memory_info().free;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, create(beyond_the_card()));
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(ChunkOfMemory, WithFlagsIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, create(granularity(), chunk_properties(), 1));
}

TEST_F(ChunkOfMemory, OfNoTypeIsRefused) {
  CUmemAllocationProp properties = chunk_properties();
  properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, create(granularity(), properties));
}

TEST_F(ChunkOfMemory, OfNoLocationIsRefused) {
  CUmemAllocationProp properties = chunk_properties();
  properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, create(granularity(), properties));
}

TEST_F(ChunkOfMemory, OfAMissingDeviceIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE,
                create(granularity(), chunk_properties(device_location(device_count()))));
}

TEST_F(ChunkOfMemory, WithoutPropertiesOrOutputIsRefused) {
  const CUmemAllocationProp properties = chunk_properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemCreate(nullptr, granularity(), &properties, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemCreate(&handle, granularity(), nullptr, 0));
}

TEST_F(ChunkOfMemory, RemembersItsProperties) {
  auto chunk = given_chunk(granularity(), chunk_properties(device_location(), Exportable::Fd));
  CUmemAllocationProp found{};
  ASSERT_CUDA(driver().cuMemGetAllocationPropertiesFromHandle(&found, chunk.handle()));
  EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.location.id, 0);
  EXPECT_EQ(found.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(ChunkOfMemory, IsKnownByAnyAddressItIsMappedAt) {
  auto mapped = given_mapped(2, granularity());
  CUmemGenericAllocationHandle found = 0;
  ASSERT_CUDA(driver().cuMemRetainAllocationHandle(
      &found, reinterpret_cast<void*>(mapped.address_of(1) + 5000)));
  GivenChunk retained{found, granularity()};
  EXPECT_EQ(retained.handle(), mapped.chunk(1).handle());
}

TEST_F(ChunkOfMemory, IsReleasedAsOftenAsItWasRetained) {
  const Size free_before = memory_info().free;
  auto mapped = given_mapped(1, granularity());
  fill_pattern(mapped.address(), mapped.size(), 3);
  CUmemGenericAllocationHandle found = 0;
  ASSERT_CUDA(
      driver().cuMemRetainAllocationHandle(&found, reinterpret_cast<void*>(mapped.address())));
  {
    GivenChunk retained{found, granularity()};
    EXPECT_CUDA(mapped.chunk(0).release());
    EXPECT_CUDA(mapped.mapping(0).unmap());
    auto again = given_mapping(mapped.address(), retained);  // one release is still due
    ASSERT_CUDA(set_access(again.address(), again.size()));
    expect_pattern(again.address(), again.size(), 3);
  }
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(ChunkOfMemory, CannotBeRetainedWhereNothingIsMapped) {
  auto reserved = given_reservation(granularity());
  CUmemGenericAllocationHandle found = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemRetainAllocationHandle(
                                              &found, reinterpret_cast<void*>(reserved.address())));
}

TEST_F(ChunkOfMemory, NeedsNoCurrentContext) {
  CUcontext popped = nullptr;
  GIVEN(driver().cuCtxPopCurrent(&popped));
  EXPECT_CUDA(create(granularity()));
  GIVEN(driver().cuCtxPushCurrent(popped));
}

// The documentation leaves an invalid handle undefined; the simulated driver is strict.
TEST_F(ChunkOfMemory, ThatNeverWasIsRefusedEverywhere) {
  NEEDS_SIMULATED_DRIVER();
  const CUmemGenericAllocationHandle never = 0x1234567;
  auto reserved = given_reservation(granularity());
  CUmemAllocationProp properties{};
  int fd = -1;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemRelease(never));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemMap(reserved.address(), granularity(), 0, never, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemGetAllocationPropertiesFromHandle(&properties, never));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemExportToShareableHandle(&fd, never,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

TEST_F(ChunkOfMemory, ReleasedTwiceIsRefused) {
  NEEDS_SIMULATED_DRIVER();
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = chunk_properties();
  GIVEN(driver().cuMemCreate(&handle, granularity(), &properties, 0));
  ASSERT_CUDA(driver().cuMemRelease(handle));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemRelease(handle));
}

}  // namespace
}  // namespace cuvmm::test
