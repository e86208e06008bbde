// SPDX-License-Identifier: Apache-2.0
// Device work that touches memory it may not. A fault ends its context, so each scenario runs in
// its own process.
#include "support/child.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size granule = 2 * MiB;
constexpr auto some_words = static_cast<std::uint32_t>(granule / 4);

// A context poisoned by a fault cannot be taken down step by step: the child just exits.
struct Doomed {
  PrimaryContext& context = left_behind<PrimaryContext>();
  Kernels& kernels = left_behind<Kernels>();
  GivenMapped& mapped = left_behind<GivenMapped>(1, granule, chunk_properties());
};

// The first failure: of the call itself or of the wait for its work.
CUresult outcome(CUresult answer) {
  return answer != CUDA_SUCCESS ? answer : synchronize();
}

void expect_that_the_fault_stays() {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, synchronize());
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, driver().cuMemAlloc(&address, 1024));
}

CHILD_ROLE(writes_read_only_memory_by_kernel) {
  const Doomed doomed;
  GIVEN(set_access(doomed.mapped.address(), granule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                outcome(launch(doomed.kernels.fill, nullptr, doomed.mapped.address(),
                               std::uint32_t{1}, some_words)));
  expect_that_the_fault_stays();
}

CHILD_ROLE(reads_memory_without_access_by_kernel) {
  const Doomed doomed;
  GIVEN(set_access(doomed.mapped.address(), granule, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, outcome(launch(doomed.kernels.add_one, nullptr,
                                                           doomed.mapped.address(), some_words)));
  expect_that_the_fault_stays();
}

CHILD_ROLE(writes_unmapped_addresses_by_kernel) {
  const Doomed doomed;
  GIVEN(doomed.mapped.mapping(0).unmap());
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                outcome(launch(doomed.kernels.fill, nullptr, doomed.mapped.address(),
                               std::uint32_t{1}, some_words)));
  expect_that_the_fault_stays();
}

CHILD_ROLE(runs_off_the_end_by_kernel) {
  const Doomed doomed;
  auto& wide = left_behind<GivenReservation>(2 * granule);  // no other mapping follows
  auto& mapping = left_behind<GivenMapping>(wide.address(), doomed.mapped.chunk(0));
  GIVEN(set_access(mapping.address(), granule));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS,
                outcome(launch(doomed.kernels.fill, nullptr, mapping.address(), std::uint32_t{1},
                               2 * some_words)));
  expect_that_the_fault_stays();
}

CHILD_ROLE(copies_from_memory_without_access) {
  const Doomed doomed;
  GIVEN(set_access(doomed.mapped.address(), granule, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  std::uint32_t word = 0;
  const CUresult answer =
      outcome(driver().cuMemcpyDtoH(&word, doomed.mapped.address(), sizeof word));
  EXPECT_NE(answer, CUDA_SUCCESS);
}

CHILD_ROLE(copies_from_unmapped_addresses) {
  const Doomed doomed;
  GIVEN(doomed.mapped.mapping(0).unmap());
  std::uint32_t word = 0;
  const CUresult answer =
      outcome(driver().cuMemcpyDtoH(&word, doomed.mapped.address(), sizeof word));
  EXPECT_NE(answer, CUDA_SUCCESS);
}

class MemoryFault : public DriverContract {};

// The driver checks before it sets, so nothing is broken.
TEST_F(MemoryFault, DoesNotFollowARefusedSetOfReadOnlyMemory) {
  auto mapped = given_mapped(1, granularity());
  ASSERT_CUDA(set_access(mapped.address(), granularity(), CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(mapped.address(), 1, granularity()));
  EXPECT_CUDA(synchronize());
}

TEST_F(MemoryFault, OfAKernelThatWritesThroughReadOnlyAccessStays) {
  EXPECT_EQ(run_child("writes_read_only_memory_by_kernel"), 0);
}

TEST_F(MemoryFault, OfAKernelThatReadsWithoutAccessStays) {
  EXPECT_EQ(run_child("reads_memory_without_access_by_kernel"), 0);
}

TEST_F(MemoryFault, OfAKernelThatWritesUnmappedAddressesStays) {
  EXPECT_EQ(run_child("writes_unmapped_addresses_by_kernel"), 0);
}

TEST_F(MemoryFault, OfAKernelThatRunsOffTheEndOfAMappingStays) {
  EXPECT_EQ(run_child("runs_off_the_end_by_kernel"), 0);
}

TEST_F(MemoryFault, OrRefusalFollowsACopyWithoutAccess) {
  EXPECT_EQ(run_child("copies_from_memory_without_access"), 0);
}

TEST_F(MemoryFault, OrRefusalFollowsACopyFromUnmappedAddresses) {
  EXPECT_EQ(run_child("copies_from_unmapped_addresses"), 0);
}

}  // namespace
}  // namespace cuvmm::test
