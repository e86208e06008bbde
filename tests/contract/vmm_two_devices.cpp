// SPDX-License-Identifier: Apache-2.0
#include "support/child.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size chunk_size = 2 * MiB;
constexpr auto may_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

class TwoDevices : public DriverContract {
 protected:
  static bool are_peers() {
    int can = 0;
    GIVEN(driver().cuDeviceCanAccessPeer(&can, device(0), device(1)));
    return can != 0;
  }
};
#define NEEDS_PEERS() \
  NEEDS_DEVICES(2);   \
  if (!are_peers()) GTEST_SKIP() << "devices 0 and 1 cannot reach each other"

CUresult let_both_in(CUdeviceptr address, Size size) {
  const CUmemAccessDesc both[] = {access(may_write, 0), access(may_write, 1)};
  return driver().cuMemSetAccess(address, size, both, 2);
}

TEST_F(TwoDevices, ShareOneRangeThatBothBack) {
  NEEDS_PEERS();
  auto reserved = given_reservation(2 * chunk_size);
  auto here = given_chunk(chunk_size, chunk_properties(device_location(0)));
  auto there = given_chunk(chunk_size, chunk_properties(device_location(1)));
  auto first = given_mapping(reserved.address(), here);
  auto second = given_mapping(reserved.address() + chunk_size, there);
  ASSERT_CUDA(let_both_in(reserved.address(), reserved.size()));
  EXPECT_EQ(rights(second.address(), 0), may_write);
  EXPECT_EQ(rights(first.address(), 1), may_write);

  const auto words = static_cast<std::uint32_t>(reserved.size() / 4);
  ASSERT_CUDA(launch(kernels().fill, nullptr, reserved.address(), std::uint32_t{3}, words));
  ASSERT_CUDA(synchronize());
  {
    PrimaryContext other{1};
    Kernels kernels_there;
    auto total = given_blocking(4);
    GIVEN(driver().cuMemsetD32(total.address(), 0, 1));
    ASSERT_CUDA(launch(kernels_there.sum, nullptr, total.address(), reserved.address(), words));
    ASSERT_CUDA(synchronize());
    EXPECT_EQ(read_word(total.address()), 3 * words);
  }
}

TEST_F(TwoDevices, OneUsesAChunkOfTheOther) {
  NEEDS_PEERS();
  const Size free_before = memory_info().free;
  auto mapped = given_mapped(1, chunk_size, chunk_properties(device_location(1)));
  EXPECT_EQ(memory_info().free, free_before);  // the memory is the other device's
  fill_pattern(mapped.address(), chunk_size, 51);
  expect_pattern(mapped.address(), chunk_size, 51);
  ASSERT_CUDA(launch(kernels().fill, nullptr, mapped.address(), std::uint32_t{8},
                     static_cast<std::uint32_t>(chunk_size / 4)));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(mapped.address()), 8u);
}

TEST_F(TwoDevices, AccessOfOneIsNotAccessOfTheOther) {
  NEEDS_PEERS();
  auto mapped = given_mapped(1, chunk_size);
  EXPECT_EQ(rights(mapped.address(), 0), may_write);
  EXPECT_EQ(rights(mapped.address(), 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_CUDA(set_access(mapped.address(), chunk_size, CU_MEM_ACCESS_FLAGS_PROT_READ, 1));
  EXPECT_EQ(rights(mapped.address(), 0), may_write);
  EXPECT_EQ(rights(mapped.address(), 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
}

CHILD_ROLE(reads_on_a_device_without_access) {
  left_behind<PrimaryContext>(0);
  auto& mapped = left_behind<GivenMapped>(1, chunk_size, chunk_properties());
  left_behind<PrimaryContext>(1);
  auto& kernels = left_behind<Kernels>();
  const CUresult launched = launch(kernels.add_one, nullptr, mapped.address(),
                                   static_cast<std::uint32_t>(chunk_size / 4));
  EXPECT_ANSWER(CUDA_ERROR_ILLEGAL_ADDRESS, launched != CUDA_SUCCESS ? launched : synchronize());
}

TEST_F(TwoDevices, FaultIfOnlyTheOtherHasAccess) {
  NEEDS_PEERS();
  EXPECT_EQ(run_child("reads_on_a_device_without_access"), 0);
}

TEST_F(TwoDevices, CountTheirMemorySeparately) {
  NEEDS_DEVICES(2);
  PrimaryContext other{1};
  const Size free_before = memory_info().free;
  auto here = given_chunk(64 * MiB, chunk_properties(device_location(0)));
  EXPECT_EQ(memory_info().free, free_before);
  auto there = given_chunk(64 * MiB, chunk_properties(device_location(1)));
  EXPECT_EQ(memory_info().free, free_before - 64 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
