// SPDX-License-Identifier: Apache-2.0
// Which devices may touch mapped memory. vmm_faults.cpp has what happens to those that may not.
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class AccessToMappings : public DriverContract {
 protected:
  const Size granule_ = 2 * MiB;
};

constexpr auto none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto read_only = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto read_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

TEST_F(AccessToMappings, StartsAsNone) {
  auto reserved = given_reservation(granule_);
  auto chunk = given_chunk(granule_);
  auto mapping = given_mapping(reserved.address(), chunk);
  EXPECT_EQ(rights(mapping.address()), none);
}

TEST_F(AccessToMappings, IsSetForSeveralMappingsInOneCall) {
  auto mapped = given_mapped(4, granule_);
  EXPECT_EQ(rights(mapped.address_of(0)), read_write);
  EXPECT_EQ(rights(mapped.address_of(3) + granule_ - 1), read_write);
}

TEST_F(AccessToMappings, IsSetForOneMappingAmongSeveral) {
  auto mapped = given_mapped(3, granule_);
  ASSERT_CUDA(set_access(mapped.address_of(1), granule_, read_only));
  EXPECT_EQ(rights(mapped.address_of(0)), read_write);
  EXPECT_EQ(rights(mapped.address_of(1)), read_only);
  EXPECT_EQ(rights(mapped.address_of(2)), read_write);
}

TEST_F(AccessToMappings, CanBeRevokedAndRestoredWithContentsIntact) {
  auto mapped = given_mapped(1, granule_);
  fill_pattern(mapped.address(), granule_, 21);
  ASSERT_CUDA(set_access(mapped.address(), granule_, none));
  EXPECT_EQ(rights(mapped.address()), none);
  ASSERT_CUDA(set_access(mapped.address(), granule_, read_write));
  expect_pattern(mapped.address(), granule_, 21);
}

TEST_F(AccessToMappings, ReadOnlyCanBeRead) {
  auto mapped = given_mapped(1, granule_);
  auto total = given_blocking(4);
  const auto words = static_cast<std::uint32_t>(granule_ / 4);
  GIVEN(driver().cuMemsetD32(mapped.address(), 2, words));
  GIVEN(driver().cuMemsetD32(total.address(), 0, 1));
  GIVEN(synchronize());
  ASSERT_CUDA(set_access(mapped.address(), granule_, read_only));
  ASSERT_CUDA(launch(kernels().sum, nullptr, total.address(), mapped.address(), words));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(total.address()), 2 * words);
  EXPECT_EQ(read_word(mapped.address()), 2u);
}

TEST_F(AccessToMappings, MayDifferBetweenMappingsOfOneChunk) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  auto published = given_mapping(reserved.address(), chunk);
  auto ours = given_mapping(reserved.address() + granule_, chunk);
  ASSERT_CUDA(set_access(published.address(), granule_, read_only));
  ASSERT_CUDA(set_access(ours.address(), granule_, read_write));
  fill_pattern(ours.address(), granule_, 22);
  expect_pattern(published.address(), granule_, 22);
}

TEST_F(AccessToMappings, CannotBeSetWhereNothingIsMapped) {
  auto reserved = given_reservation(granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, set_access(reserved.address(), granule_));
}

TEST_F(AccessToMappings, OverAHoleIsRefusedAndChangesNothing) {
  auto reserved = given_reservation(2 * granule_);
  auto chunk = given_chunk(granule_);
  auto mapping = given_mapping(reserved.address(), chunk);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, set_access(reserved.address(), 2 * granule_));
  EXPECT_EQ(rights(mapping.address()), none);
}

TEST_F(AccessToMappings, OfPartOfAMappingIsRefused) {
  auto mapped = given_mapped(1, 2 * granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, set_access(mapped.address(), granule_, read_only));
}

TEST_F(AccessToMappings, OfNoDeviceIsRefused) {
  auto mapped = given_mapped(1, granule_);
  const CUmemAccessDesc nobody = access(read_write);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemSetAccess(mapped.address(), granule_, &nobody, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemSetAccess(mapped.address(), granule_, nullptr, 1));
}

TEST_F(AccessToMappings, ThatOnlyWritesIsRefused) {
  auto mapped = given_mapped(1, granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                set_access(mapped.address(), granule_, static_cast<CUmemAccess_flags>(2)));
}

TEST_F(AccessToMappings, OfAMissingDeviceIsRefused) {
  auto mapped = given_mapped(1, granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                set_access(mapped.address(), granule_, read_write, device_count()));
}

TEST_F(AccessToMappings, OfNothingIsRefused) {
  auto mapped = given_mapped(1, granule_);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, set_access(mapped.address(), 0));
}

TEST_F(AccessToMappings, CannotBeQueriedWhereNothingIsMapped) {
  auto reserved = given_reservation(granule_);
  const CUmemLocation location = device_location();
  unsigned long long flags = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemGetAccess(&flags, &location, reserved.address()));
}

}  // namespace
}  // namespace cuvmm::test
