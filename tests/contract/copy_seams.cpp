// SPDX-License-Identifier: Apache-2.0
// Copies across the seams between the chunks of one range. Measured: they work like any other copy.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class CopiesAcrossSeams : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    granule_ = granularity();
  }
  Size granule_ = 0;
};

TEST_F(CopiesAcrossSeams, ToTheDeviceAndBack) {
  const GivenMapped mapped = given_mapped(4, granule_);
  fill_pattern(mapped.address(), mapped.size(), 1);
  expect_pattern(mapped.address(), mapped.size(), 1);
}

TEST_F(CopiesAcrossSeams, WithinTheDevice) {
  const GivenMapped from = given_mapped(3, granule_);
  const GivenMapped to = given_mapped(3, granule_);
  fill_pattern(from.address(), from.size(), 2);

  ASSERT_CUDA(driver().cuMemcpyDtoD(to.address(), from.address(), from.size()));

  expect_pattern(to.address(), to.size(), 2);
}

TEST_F(CopiesAcrossSeams, FromBlockingMemoryAtAnOddOffset) {
  const GivenBlocking from{2 * granule_};
  const GivenMapped to = given_mapped(3, granule_);
  fill_pattern(from.address(), from.size(), 3);

  ASSERT_CUDA(driver().cuMemcpyDtoD(to.address() + granule_ / 2 + 4, from.address(), from.size()));

  expect_pattern(to.address() + granule_ / 2 + 4, from.size(), 3);
}

TEST_F(CopiesAcrossSeams, Asynchronously) {
  const GivenStream stream;
  const GivenMapped mapped = given_mapped(2, granule_);
  const Size size = 64 * KiB;
  const CUdeviceptr across = mapped.address() + granule_ - size / 2;
  PinnedWords sent{size / 4};
  PinnedWords received{size / 4};
  fill_host_pattern(sent.data(), size, 4);

  ASSERT_CUDA(driver().cuMemcpyHtoDAsync(across, sent.data(), size, stream));
  ASSERT_CUDA(driver().cuMemcpyDtoHAsync(received.data(), across, size, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(has_pattern(received.data(), size, 4));
}

TEST_F(CopiesAcrossSeams, TheGenericCopyCrossesThemToo) {
  const GivenMapped from = given_mapped(2, granule_);
  const GivenMapped to = given_mapped(2, granule_);
  fill_pattern(from.address(), from.size(), 5);

  ASSERT_CUDA(driver().cuMemcpy(to.address(), from.address(), from.size()));

  expect_pattern(to.address(), to.size(), 5);
}

TEST_F(CopiesAcrossSeams, InTwoDimensions) {
  const GivenMapped mapped = given_mapped(2, granule_);
  const GivenBlocking to{64 * KiB};
  fill_pattern(mapped.address(), mapped.size(), 6);
  const CUdeviceptr across = mapped.address() + granule_ - 32 * KiB;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = across;
  copy.srcPitch = 1 * KiB;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address();
  copy.dstPitch = 1 * KiB;
  copy.WidthInBytes = 1 * KiB;
  copy.Height = 64;

  ASSERT_CUDA(driver().cuMemcpy2D(&copy));

  EXPECT_EQ(read(to.address(), 64 * KiB), read(across, 64 * KiB));
}

TEST_F(CopiesAcrossSeams, SetsCrossThem) {
  const GivenMapped mapped = given_mapped(3, granule_);

  ASSERT_CUDA(driver().cuMemsetD32(mapped.address(), 0xABCD'0123u, mapped.size() / 4));

  EXPECT_TRUE(all_words_are(mapped.address(), mapped.size() / 4, 0xABCD'0123u));
}

TEST_F(CopiesAcrossSeams, SetsInTwoDimensionsCrossThem) {
  const GivenMapped mapped = given_mapped(2, granule_);
  const CUdeviceptr across = mapped.address() + granule_ - 16 * KiB;
  ASSERT_CUDA(driver().cuMemsetD8(mapped.address(), 0, mapped.size()));

  ASSERT_CUDA(driver().cuMemsetD2D32(across, 1 * KiB, 0x77u, 256, 32));

  EXPECT_TRUE(all_words_are(across, 32 * KiB / 4, 0x77u));
}

TEST_F(CopiesAcrossSeams, KernelsCrossThem) {
  const GivenMapped from = given_mapped(2, granule_);
  const GivenMapped to = given_mapped(2, granule_);
  fill_pattern(from.address(), from.size(), 7);

  ASSERT_CUDA(launch(kernels().copy_words, default_stream, to.address(), from.address(),
                     static_cast<std::uint32_t>(from.size() / 4)));
  ASSERT_CUDA(synchronize());

  expect_pattern(to.address(), to.size(), 7);
}

TEST_F(CopiesAcrossSeams, ASecondMappingSeesWhatTheFirstWrote) {
  GivenMapped mapped = given_mapped(1, granule_);
  const GivenReservation elsewhere{granule_};
  const GivenMapping second = given_mapping(elsewhere.address(), mapped.chunk(0));
  ASSERT_CUDA(set_access(second.address(), granule_));

  fill_pattern(mapped.address(), granule_, 8);

  expect_pattern(second.address(), granule_, 8);
}

}  // namespace
}  // namespace cuvmm::test
