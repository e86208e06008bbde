// SPDX-License-Identifier: Apache-2.0
// Copies that name their contexts, within a device and between two.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size size = 1 * MiB;

class PeerCopies : public DriverContract {};

TEST_F(PeerCopies, WithinOneContext) {
  const GivenBlocking from{size};
  const GivenBlocking to{size};
  fill_pattern(from.address(), size, 1);

  ASSERT_CUDA(driver().cuMemcpyPeer(to.address(), primary(), from.address(), primary(), size));

  expect_pattern(to.address(), size, 1);
}

TEST_F(PeerCopies, BetweenTwoContextsOfOneDevice) {
  const GivenBlocking from{size};
  fill_pattern(from.address(), size, 2);
  const OwnContext other;
  const GivenBlocking to{size};

  ASSERT_CUDA(driver().cuMemcpyPeer(to.address(), other.get(), from.address(), primary(), size));

  expect_pattern(to.address(), size, 2);
}

TEST_F(PeerCopies, AsynchronouslyInStreamOrder) {
  const GivenStream stream;
  const GivenBlocking from{size};
  const GivenBlocking to{size};
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuMemsetD32Async(from.address(), 4, size / 4, stream));

  ASSERT_CUDA(
      driver().cuMemcpyPeerAsync(to.address(), primary(), from.address(), primary(), size, stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(to.address(), size / 4, 4));
}

TEST_F(PeerCopies, BetweenTwoDevicesWithoutPeerAccess) {
  NEEDS_DEVICES(2);
  const GivenBlocking from{size};
  fill_pattern(from.address(), size, 3);
  const PrimaryContext there{1};
  const GivenBlocking to{size};

  ASSERT_CUDA(driver().cuMemcpyPeer(to.address(), there.get(), from.address(), primary(), size));

  expect_pattern(to.address(), size, 3);
}

TEST_F(PeerCopies, ThePlainCopyFindsTheDeviceByTheAddress) {
  NEEDS_DEVICES(2);
  const GivenBlocking from{size};
  fill_pattern(from.address(), size, 4);
  const PrimaryContext there{1};
  const GivenBlocking to{size};

  ASSERT_CUDA(driver().cuMemcpy(to.address(), from.address(), size));
  ASSERT_CUDA(synchronize());

  expect_pattern(to.address(), size, 4);
}

TEST_F(PeerCopies, ABoxBetweenTwoDevices) {
  NEEDS_DEVICES(2);
  const GivenBlocking from{size};
  fill_pattern(from.address(), size, 5);
  const PrimaryContext there{1};
  const GivenBlocking to{size};
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address();
  copy.srcContext = primary();
  copy.srcPitch = 1 * KiB;
  copy.srcHeight = 32;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address();
  copy.dstContext = there.get();
  copy.dstPitch = 1 * KiB;
  copy.dstHeight = 32;
  copy.WidthInBytes = 1 * KiB;
  copy.Height = 32;
  copy.Depth = 32;

  ASSERT_CUDA(driver().cuMemcpy3DPeer(&copy));
  ASSERT_CUDA(synchronize());

  expect_pattern(to.address(), size, 5);
}

TEST_F(PeerCopies, PastTheEndIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenBlocking from{2 * MiB};
  const GivenBlocking to{4 * MiB};

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemcpyPeer(to.address(), primary(), from.address(), primary(), 4 * MiB));
}

}  // namespace
}  // namespace cuvmm::test
