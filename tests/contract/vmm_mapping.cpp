// SPDX-License-Identifier: Apache-2.0
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class MappingOfMemory : public DriverContract {
 protected:
  const Size granule_ = 2 * MiB;
};

CUresult map(CUdeviceptr address, Size size, const GivenChunk& chunk, Size offset = 0,
             unsigned long long flags = 0) {
  return driver().cuMemMap(address, size, offset, chunk.handle(), flags);
}

CUresult unmap(CUdeviceptr address, Size size) {
  return driver().cuMemUnmap(address, size);
}

TEST_F(MappingOfMemory, OfManyChunksIsOneRangeToCopiesAndKernels) {
  auto mapped = given_mapped(4, granule_);
  fill_pattern(mapped.address(), mapped.size(), 11);
  expect_pattern(mapped.address(), mapped.size(), 11);
  ASSERT_CUDA(launch(kernels().fill, nullptr, mapped.address(), std::uint32_t{0xC0FFEE},
                     static_cast<std::uint32_t>(mapped.size() / 4)));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(mapped.address()), 0xC0FFEEu);
  EXPECT_EQ(read_word(mapped.address_of(1) - 4), 0xC0FFEEu);
  EXPECT_EQ(read_word(mapped.address_of(1)), 0xC0FFEEu);
  EXPECT_EQ(read_word(mapped.address() + mapped.size() - 4), 0xC0FFEEu);
}

TEST_F(MappingOfMemory, TakesNoMemoryOfItsOwn) {
  auto reserved = given_reservation(64 * MiB);
  auto chunk = given_chunk(64 * MiB);
  const Size free_before = memory_info().free;
  auto mapping = given_mapping(reserved.address(), chunk);
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(MappingOfMemory, FromAnOffsetIsNotSupported) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(2 * granule_);
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, map(reserved.address(), granule_, chunk, granule_));
}

TEST_F(MappingOfMemory, OfPartOfAChunkIsNotSupported) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(2 * granule_);
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, map(reserved.address(), granule_, chunk));
}

TEST_F(MappingOfMemory, OfMoreThanTheChunkIsNotSupported) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_NOT_SUPPORTED, map(reserved.address(), 2 * granule_, chunk));
}

TEST_F(MappingOfMemory, OfNothingIsRefused) {
  auto reserved = given_reservation(granule_);
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(reserved.address(), 0, chunk));
}

TEST_F(MappingOfMemory, AtAnUnalignedAddressIsRefused) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(reserved.address() + 64 * KiB, granule_, chunk));
}

TEST_F(MappingOfMemory, OverAMappingIsRefusedAndChangesNothing) {
  auto mapped = given_mapped(1, granule_);
  fill_pattern(mapped.address(), mapped.size(), 5);
  auto another = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(mapped.address(), granule_, another));
  expect_pattern(mapped.address(), mapped.size(), 5);
}

TEST_F(MappingOfMemory, ThatOverlapsAMappingIsRefused) {
  auto reserved = given_reservation(3 * granule_);
  auto first = given_chunk(granule_);
  auto mapping = given_mapping(reserved.address() + granule_, first);
  auto larger = given_chunk(2 * granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(reserved.address(), 2 * granule_, larger));
}

TEST_F(MappingOfMemory, OutsideAReservationIsRefused) {
  CUdeviceptr freed = 0;
  {
    auto reserved = given_reservation(granule_);
    freed = reserved.address();
  }
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(freed, granule_, chunk));
}

TEST_F(MappingOfMemory, WithFlagsIsRefused) {
  auto reserved = given_reservation(granule_);
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(reserved.address(), granule_, chunk, 0, 1));
}

TEST_F(MappingOfMemory, InsideBlockingMemoryIsRefused) {
  auto block = given_blocking(granule_);
  auto chunk = given_chunk(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, map(block.address(), granule_, chunk));
}

TEST_F(MappingOfMemory, UnmappedInPartIsRefusedAndChangesNothing) {
  auto mapped = given_mapped(1, 2 * granule_);
  fill_pattern(mapped.address(), mapped.size(), 6);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, unmap(mapped.address(), granule_));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, unmap(mapped.address() + granule_, granule_));
  expect_pattern(mapped.address(), mapped.size(), 6);
}

TEST_F(MappingOfMemory, UnmappedWithHalfOfItsNeighbourIsRefusedAndChangesNothing) {
  auto mapped = given_mapped(2, 2 * granule_);
  fill_pattern(mapped.address(), mapped.size(), 7);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, unmap(mapped.address(), 3 * granule_));
  expect_pattern(mapped.address(), mapped.size(), 7);
}

TEST_F(MappingOfMemory, IsUnmappedTogetherWithItsNeighboursInOneCall) {
  auto reserved = given_reservation(2 * granule_);
  auto one = given_chunk(granule_);
  auto other = given_chunk(granule_);
  ASSERT_CUDA(map(reserved.address(), granule_, one));
  ASSERT_CUDA(map(reserved.address() + granule_, granule_, other));
  EXPECT_CUDA(unmap(reserved.address(), 2 * granule_));
}

TEST_F(MappingOfMemory, MayBeUnmappedWithAHole) {
  auto reserved = given_reservation(3 * granule_);
  auto one = given_chunk(granule_);
  auto other = given_chunk(granule_);
  ASSERT_CUDA(map(reserved.address(), granule_, one));
  ASSERT_CUDA(map(reserved.address() + 2 * granule_, granule_, other));
  EXPECT_CUDA(unmap(reserved.address(), 3 * granule_));
  EXPECT_CUDA(map(reserved.address(), granule_, one)) << "nothing lies there any more";
  EXPECT_CUDA(unmap(reserved.address(), granule_));
}

TEST_F(MappingOfMemory, MayBeUnmappedTwice) {
  auto mapped = given_mapped(1, granule_);
  const CUdeviceptr address = mapped.address();
  ASSERT_CUDA(mapped.mapping(0).unmap());
  EXPECT_CUDA(unmap(address, granule_));
}

TEST_F(MappingOfMemory, ThatNeverWasMayBeUnmapped) {
  auto reserved = given_reservation(granule_);
  EXPECT_CUDA(unmap(reserved.address(), granule_));
}

TEST_F(MappingOfMemory, OfBlockingMemoryCannotBeUnmappedByTheProgram) {
  auto block = given_blocking(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, unmap(block.address(), granule_));
  EXPECT_CUDA(driver().cuMemsetD8(block.address(), 1, granule_));
}

TEST_F(MappingOfMemory, MovesAChunkWithItsContents) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  {
    auto first = given_mapping(reserved.address(), chunk);
    GIVEN(set_access(first.address(), granule_));
    fill_pattern(first.address(), granule_, 9);
  }
  auto second = given_mapping(reserved.address() + granule_, chunk);
  GIVEN(set_access(second.address(), granule_));
  expect_pattern(second.address(), granule_, 9);
}

TEST_F(MappingOfMemory, MadeAgainStartsWithoutAccess) {
  auto mapped = given_mapped(1, granule_);
  const CUdeviceptr address = mapped.address();
  EXPECT_EQ(rights(address), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CUDA(mapped.mapping(0).unmap());
  auto again = given_mapping(address, mapped.chunk(0));
  EXPECT_EQ(rights(address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(MappingOfMemory, AtTwoAddressesIsOneMemoryToCopies) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  auto one = given_mapping(reserved.address(), chunk);
  auto other = given_mapping(reserved.address() + granule_, chunk);
  GIVEN(set_access(reserved.address(), reserved.size()));
  fill_pattern(one.address(), granule_, 12);
  expect_pattern(other.address(), granule_, 12);
  write_word(other.address() + 4096, 77);
  EXPECT_EQ(read_word(one.address() + 4096), 77u);
}

TEST_F(MappingOfMemory, AtTwoAddressesIsOneMemoryToKernels) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  auto one = given_mapping(reserved.address(), chunk);
  auto other = given_mapping(reserved.address() + granule_, chunk);
  GIVEN(set_access(reserved.address(), reserved.size()));
  const auto words = static_cast<std::uint32_t>(granule_ / 4);
  ASSERT_CUDA(launch(kernels().fill, nullptr, one.address(), std::uint32_t{40}, words));
  ASSERT_CUDA(launch(kernels().add_one, nullptr, other.address(), words));
  ASSERT_CUDA(launch(kernels().add_one, nullptr, one.address(), words));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(one.address() + granule_ - 4), 42u);
}

TEST_F(MappingOfMemory, CanBeMadeASecondTimeWhileAKernelUsesTheFirst) {
  auto mapped = given_mapped(1, granule_);
  auto elsewhere = given_reservation(granule_);
  GivenStream stream;
  {
    SlowWork work{kernels(), stream};
    ASSERT_CUDA(launch(kernels().fill, stream, mapped.address(), std::uint32_t{3},
                       static_cast<std::uint32_t>(granule_ / 4)));
    auto second = given_mapping(elsewhere.address(), mapped.chunk(0));
    ASSERT_CUDA(set_access(second.address(), granule_));  // none of these calls waits for the work
    EXPECT_CUDA(second.unmap());
  }
  EXPECT_EQ(read_word(mapped.address()), 3u);
}

TEST_F(MappingOfMemory, KeepsTheMemoryOfAReleasedChunkUntilItIsUnmapped) {
  const Size free_before = memory_info().free;
  auto mapped = given_mapped(1, 64 * MiB);
  fill_pattern(mapped.address(), 1 * MiB, 13);
  ASSERT_CUDA(mapped.chunk(0).release());
  EXPECT_EQ(memory_info().free, free_before - 64 * MiB);
  expect_pattern(mapped.address(), 1 * MiB, 13);
  ASSERT_CUDA(mapped.mapping(0).unmap());
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(MappingOfMemory, OfMemoryMadeInAContextOutlivesTheContext) {
  auto reserved = given_reservation(granule_);
  OwnContext own;
  auto chunk = given_chunk(granule_);
  own.leave();
  {
    auto mapping = given_mapping(reserved.address(), chunk);
    GIVEN(set_access(mapping.address(), granule_));
    fill_pattern(mapping.address(), granule_, 14);
  }
  ASSERT_CUDA(own.destroy());
  auto mapping = given_mapping(reserved.address(), chunk);
  ASSERT_CUDA(set_access(mapping.address(), granule_));
  expect_pattern(mapping.address(), granule_, 14);
}

}  // namespace
}  // namespace cuvmm::test
