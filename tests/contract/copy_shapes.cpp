// SPDX-License-Identifier: Apache-2.0
// Copies of rectangles and boxes.
#include <cstring>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class ShapedCopies : public DriverContract {};

// A host image in which no two rows or columns of a test's size look alike.
struct Picture {
  Size pitch, height;
  std::vector<std::uint8_t> bytes;
  Picture(Size pitch_, Size height_, std::uint8_t seed)
      : pitch(pitch_), height(height_), bytes(pitch_ * height_) {
    for (Size y = 0; y < height; ++y) {
      for (Size x = 0; x < pitch; ++x) at(x, y) = static_cast<std::uint8_t>(seed + 7 * y + x);
    }
  }
  std::uint8_t& at(Size x, Size y) { return bytes[y * pitch + x]; }
};

CUDA_MEMCPY2D to_device(const Picture& from, CUdeviceptr to, Size to_pitch, Size width,
                        Size height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from.bytes.data();
  copy.srcPitch = from.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = to_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

TEST_F(ShapedCopies, ARectangleLandsInItsRowsAlone) {
  const Size pitch = 256;
  const GivenBlocking memory{pitch * 16};
  ASSERT_CUDA(driver().cuMemsetD8(memory.address(), 0xEE, memory.size()));
  Picture picture{100, 8, 1};
  CUDA_MEMCPY2D copy = to_device(picture, memory.address(), pitch, 50, 8);
  copy.srcXInBytes = 10;
  copy.dstXInBytes = 20;
  copy.dstY = 3;

  ASSERT_CUDA(driver().cuMemcpy2D(&copy));

  const std::vector<std::byte> all = read(memory.address(), memory.size());
  const auto byte_at = [&](Size x, Size y) {
    return std::to_integer<std::uint8_t>(all[y * pitch + x]);
  };
  EXPECT_EQ(byte_at(20, 3), picture.at(10, 0));
  EXPECT_EQ(byte_at(69, 10), picture.at(59, 7));
  EXPECT_EQ(byte_at(19, 3), 0xEE);
  EXPECT_EQ(byte_at(70, 3), 0xEE);
  EXPECT_EQ(byte_at(20, 2), 0xEE);
  EXPECT_EQ(byte_at(20, 11), 0xEE);
}

TEST_F(ShapedCopies, ARectangleComesBack) {
  const Size pitch = 512;
  const GivenBlocking memory{pitch * 8};
  Picture sent{64, 8, 5};
  Picture received{64, 8, 0};
  const CUDA_MEMCPY2D there = to_device(sent, memory.address(), pitch, 64, 8);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = memory.address();
  back.srcPitch = pitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = received.bytes.data();
  back.dstPitch = received.pitch;
  back.WidthInBytes = 64;
  back.Height = 8;

  ASSERT_CUDA(driver().cuMemcpy2D(&there));
  ASSERT_CUDA(driver().cuMemcpy2D(&back));

  EXPECT_EQ(received.bytes, sent.bytes);
}

TEST_F(ShapedCopies, UnifiedAddressesNameEitherSide) {
  const Size pitch = 256;
  const GivenBlocking memory{pitch * 4};
  Picture sent{32, 4, 9};
  CUDA_MEMCPY2D copy = to_device(sent, memory.address(), pitch, 32, 4);
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcHost = nullptr;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(sent.bytes.data());
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;

  ASSERT_CUDA(driver().cuMemcpy2D(&copy));

  const std::vector<std::byte> row = read(memory.address() + pitch, 32);
  EXPECT_EQ(std::to_integer<std::uint8_t>(row[31]), sent.at(31, 1));
}

TEST_F(ShapedCopies, TheUnalignedFormTakesOddPitches) {
  const GivenBlocking memory{4 * KiB};
  Picture sent{33, 5, 3};
  const CUDA_MEMCPY2D copy = to_device(sent, memory.address() + 1, 33, 33, 5);

  ASSERT_CUDA(driver().cuMemcpy2DUnaligned(&copy));

  const std::vector<std::byte> all = read(memory.address() + 1, 33 * 5);
  EXPECT_EQ(std::memcmp(all.data(), sent.bytes.data(), all.size()), 0);
}

TEST_F(ShapedCopies, TheAsynchronousFormRunsInStreamOrder) {
  const GivenStream stream;
  const Size pitch = 256;
  const GivenBlocking from{pitch * 4};
  const GivenBlocking to{pitch * 4};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from.address();
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to.address();
  copy.dstPitch = pitch;
  copy.WidthInBytes = pitch;
  copy.Height = 4;
  SlowWork work{kernels(), stream};
  ASSERT_CUDA(driver().cuMemsetD8Async(from.address(), 0x21, from.size(), stream));

  ASSERT_CUDA(driver().cuMemcpy2DAsync(&copy, stream));
  copy = {};  // the call must have read its parameters by now
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(to.address(), to.size() / 4, 0x2121'2121u));
}

TEST_F(ShapedCopies, APitchNarrowerThanTheRowIsRefused) {
  const GivenBlocking memory{4 * KiB};
  Picture sent{64, 4, 1};
  const CUDA_MEMCPY2D copy = to_device(sent, memory.address(), 32, 64, 4);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpy2D(&copy));
}

TEST_F(ShapedCopies, ARectanglePastTheEndIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenBlocking memory{2 * MiB};
  Picture sent{64, 4, 1};
  const CUDA_MEMCPY2D copy = to_device(sent, memory.address() + memory.size() - 512, 256, 64, 4);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpy2D(&copy));
}

TEST_F(ShapedCopies, ARectangleOfNothingSucceeds) {
  const GivenBlocking memory{4 * KiB};
  Picture sent{64, 4, 1};
  const CUDA_MEMCPY2D no_width = to_device(sent, memory.address(), 64, 0, 4);
  const CUDA_MEMCPY2D no_height = to_device(sent, memory.address(), 64, 64, 0);

  EXPECT_CUDA(driver().cuMemcpy2D(&no_width));
  EXPECT_CUDA(driver().cuMemcpy2D(&no_height));
}

TEST_F(ShapedCopies, APitchedAllocationTakesAPicture) {
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  ASSERT_CUDA(driver().cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
  EXPECT_GE(pitch, 100u);
  Picture sent{100, 10, 7};
  const CUDA_MEMCPY2D copy = to_device(sent, pitched, pitch, 100, 10);

  EXPECT_CUDA(driver().cuMemcpy2D(&copy));

  const std::vector<std::byte> row = read(pitched + 9 * pitch, 100);
  EXPECT_EQ(std::to_integer<std::uint8_t>(row[99]), sent.at(99, 9));
  EXPECT_CUDA(driver().cuMemFree(pitched));
}

// A box of `width` x `height` x `depth` in device memory with rows of 64 bytes and 8 rows per
// layer.
CUDA_MEMCPY3D box(CUdeviceptr from, CUdeviceptr to, Size width, Size height, Size depth) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = 64;
  copy.srcHeight = 8;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = 64;
  copy.dstHeight = 8;
  copy.WidthInBytes = width;
  copy.Height = height;
  copy.Depth = depth;
  return copy;
}

constexpr Size layer = 64 * 8;

TEST_F(ShapedCopies, ABoxLandsInItsLayersAlone) {
  const GivenBlocking from{8 * layer};
  const GivenBlocking to{8 * layer};
  fill_pattern(from.address(), from.size(), 1);
  ASSERT_CUDA(driver().cuMemsetD8(to.address(), 0xEE, to.size()));
  CUDA_MEMCPY3D copy = box(from.address(), to.address(), 16, 2, 3);
  copy.srcXInBytes = 8;
  copy.srcY = 1;
  copy.srcZ = 2;
  copy.dstXInBytes = 4;
  copy.dstY = 5;
  copy.dstZ = 4;

  ASSERT_CUDA(driver().cuMemcpy3D(&copy));

  const std::vector<std::byte> source = read(from.address(), from.size());
  const std::vector<std::byte> target = read(to.address(), to.size());
  const auto at = [](Size x, Size y, Size z) { return z * layer + y * 64 + x; };
  EXPECT_EQ(target[at(4, 5, 4)], source[at(8, 1, 2)]);
  EXPECT_EQ(target[at(19, 6, 6)], source[at(23, 2, 4)]);
  EXPECT_EQ(target[at(3, 5, 4)], std::byte{0xEE});
  EXPECT_EQ(target[at(20, 5, 4)], std::byte{0xEE});
  EXPECT_EQ(target[at(4, 4, 4)], std::byte{0xEE});
  EXPECT_EQ(target[at(4, 7, 4)], std::byte{0xEE});
  EXPECT_EQ(target[at(4, 5, 3)], std::byte{0xEE});
  EXPECT_EQ(target[at(4, 5, 7)], std::byte{0xEE});
}

TEST_F(ShapedCopies, ABoxMayBeCopiedAsynchronously) {
  const GivenStream stream;
  const GivenBlocking from{8 * layer};
  const GivenBlocking to{8 * layer};
  fill_pattern(from.address(), from.size(), 2);
  const CUDA_MEMCPY3D copy = box(from.address(), to.address(), 64, 8, 8);

  ASSERT_CUDA(driver().cuMemcpy3DAsync(&copy, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  expect_pattern(to.address(), to.size(), 2);
}

TEST_F(ShapedCopies, ABoxPastTheEndIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenBlocking from{2 * MiB};
  const GivenBlocking to{4 * MiB};
  const CUDA_MEMCPY3D copy = box(from.address() + from.size() - layer, to.address(), 64, 8, 2);

  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpy3D(&copy));
}

}  // namespace
}  // namespace cuvmm::test
