// SPDX-License-Identifier: Apache-2.0
#include "support/memory.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class Reservation : public DriverContract {};

CUresult reserve(CUdeviceptr* address, Size size, Size alignment = 0, CUdeviceptr hint = 0,
                 unsigned long long flags = 0) {
  return driver().cuMemAddressReserve(address, size, alignment, hint, flags);
}

TEST_F(Reservation, BeginsAtTheGranularity) {
  auto reserved = given_reservation(granularity());
  EXPECT_EQ(reserved.address() % granularity(), 0u);
}

TEST_F(Reservation, TakesNoMemory) {
  const Size free_before = memory_info().free;
  auto reserved = given_reservation(100 * GiB);
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(Reservation, MayHaveSixtyFourTebibytes) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer keeps most addresses for itself";
  CUdeviceptr address = 0;
  ASSERT_CUDA(reserve(&address, 64 * TiB));
  EXPECT_CUDA(driver().cuMemAddressFree(address, 64 * TiB));
}

TEST_F(Reservation, OfOneHundredAndTwentyEightTebibytesIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, reserve(&address, 128 * TiB));
}

TEST_F(Reservation, OfNothingIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, reserve(&address, 0));
}

TEST_F(Reservation, OfAnUnalignedSizeIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, reserve(&address, granularity() + 1000));
}

TEST_F(Reservation, WhoseSizeOverflowsIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, reserve(&address, round_down(~Size{0}, granularity())));
}

TEST_F(Reservation, HonoursTheAlignment) {
  auto reserved = given_reservation(granularity(), 1 * GiB);
  EXPECT_EQ(reserved.address() % (1 * GiB), 0u);
}

TEST_F(Reservation, WithAnAlignmentThatIsNoPowerOfTwoIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, reserve(&address, granularity(), 3 * granularity()));
}

TEST_F(Reservation, FollowsTheHintIfThoseAddressesAreFree) {
  CUdeviceptr wanted = 0;
  {
    auto reserved = given_reservation(64 * MiB);
    wanted = reserved.address();
  }
  CUdeviceptr address = 0;
  ASSERT_CUDA(reserve(&address, 64 * MiB, 0, wanted));
  EXPECT_EQ(address, wanted);
  EXPECT_CUDA(driver().cuMemAddressFree(address, 64 * MiB));
}

TEST_F(Reservation, IsElsewhereIfTheHintIsTaken) {
  auto taken = given_reservation(64 * MiB);
  CUdeviceptr address = 0;
  ASSERT_CUDA(reserve(&address, 64 * MiB, 0, taken.address()));
  EXPECT_TRUE(address >= taken.address() + taken.size() || address + 64 * MiB <= taken.address());
  EXPECT_CUDA(driver().cuMemAddressFree(address, 64 * MiB));
}

TEST_F(Reservation, WithFlagsIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, reserve(&address, granularity(), 0, 0, 1));
}

TEST_F(Reservation, WithoutAnOutputIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, reserve(nullptr, granularity()));
}

TEST_F(Reservation, NeverOverlapsAnother) {
  auto one = given_reservation(64 * MiB);
  auto other = given_reservation(64 * MiB);
  EXPECT_TRUE(one.address() + one.size() <= other.address() ||
              other.address() + other.size() <= one.address());
}

TEST_F(Reservation, CanOnlyBeFreedAsAWhole) {
  auto reserved = given_reservation(4 * granularity());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAddressFree(reserved.address(), 2 * granularity()));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAddressFree(reserved.address() + granularity(), 3 * granularity()));
}

TEST_F(Reservation, FreedTwiceIsRefused) {
  auto reserved = given_reservation(granularity());
  const CUdeviceptr address = reserved.forget();
  ASSERT_CUDA(driver().cuMemAddressFree(address, granularity()));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAddressFree(address, granularity()));
}

TEST_F(Reservation, ThatNeverWasCannotBeFreed) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAddressFree(granularity(), granularity()));
}

TEST_F(Reservation, WithSomethingMappedCannotBeFreed) {
  auto mapped = given_mapped(1, granularity());
  fill_pattern(mapped.address(), mapped.size(), 1);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAddressFree(mapped.address(), mapped.size()));
  expect_pattern(mapped.address(), mapped.size(), 1);  // and nothing changed
}

TEST_F(Reservation, OfBlockingMemoryCannotBeFreedByTheProgram) {
  auto block = given_blocking(granularity());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAddressFree(block.address(), block.size()));
}

}  // namespace
}  // namespace cuvmm::test
