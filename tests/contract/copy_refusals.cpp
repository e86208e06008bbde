// SPDX-License-Identifier: Apache-2.0
// Refused copies leave everything unchanged.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class RefusedCopies : public DriverContract {
 protected:
  std::vector<std::byte> host_ = std::vector<std::byte>(8 * MiB);
};

TEST_F(RefusedCopies, PastTheEndOfAnAllocation) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenBlocking memory{2 * MiB};
  const GivenBlocking other{8 * MiB};
  fill_pattern(memory.address(), memory.size(), 1);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyHtoD(memory.address() + 1 * MiB, host_.data(), 2 * MiB));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoH(host_.data(), memory.address(), 2 * MiB + 1));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(memory.address(), other.address(), 4 * MiB));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoDAsync(memory.address(), other.address(), 4 * MiB, stream));

  expect_pattern(memory.address(), memory.size(), 1);
}

TEST_F(RefusedCopies, ToAFreedAllocation) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  GivenBlocking memory{2 * MiB};
  const CUdeviceptr gone = memory.address();
  ASSERT_CUDA(memory.free());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyHtoD(gone, host_.data(), 4));
}

TEST_F(RefusedCopies, FromAFreedAllocation) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  GivenBlocking memory{2 * MiB};
  const GivenBlocking to{2 * MiB};
  const CUdeviceptr gone = memory.address();
  ASSERT_CUDA(memory.free());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoH(host_.data(), gone, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoD(to.address(), gone, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoHAsync(host_.data(), gone, 4, stream));
}

TEST_F(RefusedCopies, ToReservedAddressesWithoutMemory) {
  const GivenReservation reservation{granularity()};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyHtoD(reservation.address(), host_.data(), 4));
}

TEST_F(RefusedCopies, AcrossAHoleInAReservation) {
  const Size granule = granularity();
  const GivenReservation reservation{3 * granule};
  const GivenChunk first = given_chunk(granule);
  const GivenChunk third = given_chunk(granule);
  const GivenMapping low = given_mapping(reservation.address(), first);
  const GivenMapping high = given_mapping(reservation.address() + 2 * granule, third);
  ASSERT_CUDA(set_access(low.address(), granule));
  ASSERT_CUDA(set_access(high.address(), granule));
  const GivenBlocking from{3 * granule};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(reservation.address(), from.address(), 3 * granule));
}

TEST_F(RefusedCopies, OfANullAddress) {
  const GivenBlocking memory{4 * KiB};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyHtoD(0, host_.data(), 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoH(host_.data(), 0, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoD(memory.address(), 0, 4));
}

TEST_F(RefusedCopies, WhoseLengthOverflows) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenBlocking memory{4 * KiB};
  const GivenBlocking other{4 * KiB};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyDtoD(memory.address(), other.address(), unlimited));
}

TEST_F(RefusedCopies, WithoutAContext) {
  const GivenBlocking memory{4 * KiB};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, without_a_context([&] {
                  return driver().cuMemcpyDtoH(host_.data(), memory.address(), 4);
                }));
}

}  // namespace
}  // namespace cuvmm::test
