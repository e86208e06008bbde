// SPDX-License-Identifier: Apache-2.0
// Setting device memory to a value.
#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class Sets : public DriverContract {};

// Memory with a guard on each side, so that a set that writes too much shows.
class Guarded {
 public:
  explicit Guarded(Size size) : memory_(size + 2 * guard_), size_(size) {
    EXPECT_CUDA(driver().cuMemsetD8(memory_.address(), 0xEE, memory_.size()));
  }
  CUdeviceptr address() const { return memory_.address() + guard_; }
  bool guards_hold() const {
    const std::vector<std::byte> all = read(memory_.address(), memory_.size());
    for (Size i = 0; i < guard_; ++i) {
      if (all[i] != std::byte{0xEE} || all[guard_ + size_ + i] != std::byte{0xEE}) return false;
    }
    return true;
  }

 private:
  static constexpr Size guard_ = 256;
  GivenBlocking memory_;
  Size size_;
};

TEST_F(Sets, BytesAreSet) {
  const Guarded memory{1000};
  ASSERT_CUDA(driver().cuMemsetD8(memory.address(), 0x31, 1000));
  EXPECT_EQ(read(memory.address(), 1000), std::vector<std::byte>(1000, std::byte{0x31}));
  EXPECT_TRUE(memory.guards_hold());
}

TEST_F(Sets, BytesMayBeginAnywhere) {
  const Guarded memory{64};
  ASSERT_CUDA(driver().cuMemsetD8(memory.address() + 3, 0x77, 5));
  const std::vector<std::byte> bytes = read(memory.address(), 16);
  EXPECT_EQ(bytes[2], std::byte{0xEE});
  EXPECT_EQ(bytes[3], std::byte{0x77});
  EXPECT_EQ(bytes[7], std::byte{0x77});
  EXPECT_EQ(bytes[8], std::byte{0xEE});
}

TEST_F(Sets, HalfWordsAreSet) {
  const Guarded memory{1000};
  ASSERT_CUDA(driver().cuMemsetD16(memory.address(), 0x1234, 500));
  EXPECT_TRUE(all_words_are(memory.address(), 250, 0x1234'1234u));
  EXPECT_TRUE(memory.guards_hold());
}

TEST_F(Sets, WordsAreSet) {
  const Guarded memory{4000};
  ASSERT_CUDA(driver().cuMemsetD32(memory.address(), 0xDEAD'BEEFu, 1000));
  EXPECT_TRUE(all_words_are(memory.address(), 1000, 0xDEAD'BEEFu));
  EXPECT_TRUE(memory.guards_hold());
}

TEST_F(Sets, RectanglesOfBytesLeaveTheRestOfTheRows) {
  const Guarded memory{4096};
  ASSERT_CUDA(driver().cuMemsetD2D8(memory.address(), 512, 0x42, 100, 8));
  const std::vector<std::byte> bytes = read(memory.address(), 4096);
  EXPECT_EQ(bytes[7 * 512 + 99], std::byte{0x42});
  EXPECT_EQ(bytes[7 * 512 + 100], std::byte{0xEE});
  EXPECT_EQ(bytes[511], std::byte{0xEE});
  EXPECT_TRUE(memory.guards_hold());
}

TEST_F(Sets, RectanglesOfHalfWordsCountHalfWords) {
  const Guarded memory{4096};
  ASSERT_CUDA(driver().cuMemsetD2D16(memory.address(), 512, 0x4243, 100, 8));
  const std::vector<std::byte> bytes = read(memory.address(), 4096);
  EXPECT_EQ(bytes[7 * 512 + 198], std::byte{0x43});
  EXPECT_EQ(bytes[7 * 512 + 199], std::byte{0x42});
  EXPECT_EQ(bytes[7 * 512 + 200], std::byte{0xEE});
}

TEST_F(Sets, RectanglesOfWordsCountWords) {
  const Guarded memory{4096};
  ASSERT_CUDA(driver().cuMemsetD2D32(memory.address(), 512, 0x01020304, 100, 8));
  const std::vector<std::byte> bytes = read(memory.address(), 4096);
  EXPECT_EQ(bytes[7 * 512 + 396], std::byte{0x04});
  EXPECT_EQ(bytes[7 * 512 + 399], std::byte{0x01});
  EXPECT_EQ(bytes[7 * 512 + 400], std::byte{0xEE});
}

TEST_F(Sets, AsynchronousSetsRunInStreamOrder) {
  const GivenStream stream;
  const Guarded memory{4096};
  const CUdeviceptr at = memory.address();
  ASSERT_CUDA(synchronize());
  SlowWork work{kernels(), stream};

  ASSERT_CUDA(driver().cuMemsetD32Async(at, 1, 1024, stream));
  ASSERT_CUDA(driver().cuMemsetD16Async(at, 2, 1024, stream));
  ASSERT_CUDA(driver().cuMemsetD8Async(at, 3, 1024, stream));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(stream));
  work.end();
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(at, 256, 0x0303'0303u));
  EXPECT_TRUE(all_words_are(at + 1024, 256, 0x0002'0002u));
  EXPECT_TRUE(all_words_are(at + 2048, 512, 1));
}

TEST_F(Sets, AsynchronousRectanglesRunInStreamOrder) {
  const GivenStream stream;
  const Guarded memory{4096};
  const CUdeviceptr at = memory.address();
  ASSERT_CUDA(synchronize());

  ASSERT_CUDA(driver().cuMemsetD2D32Async(at, 512, 1, 128, 8, stream));
  ASSERT_CUDA(driver().cuMemsetD2D16Async(at, 512, 2, 128, 8, stream));
  ASSERT_CUDA(driver().cuMemsetD2D8Async(at, 512, 3, 128, 8, stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(at + 512, 32, 0x0303'0303u));
  EXPECT_TRUE(all_words_are(at + 512 + 128, 32, 0x0002'0002u));
  EXPECT_TRUE(all_words_are(at + 512 + 256, 64, 1));
}

TEST_F(Sets, ThePerThreadFlavoursSetToo) {
  const Guarded memory{256};
  ASSERT_CUDA(synchronize());

  ASSERT_CUDA(driver().cuMemsetD32_per_thread(memory.address(), 5, 64));
  ASSERT_CUDA(driver().cuMemsetD8Async_per_thread(memory.address(), 6, 4, default_stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(per_thread_stream));

  EXPECT_EQ(read_word(memory.address()), 0x0606'0606u);
  EXPECT_EQ(read_word(memory.address() + 4), 5u);
}

TEST_F(Sets, NothingMayBeSet) {
  const GivenStream stream;
  const Guarded memory{64};
  EXPECT_CUDA(driver().cuMemsetD8(memory.address(), 1, 0));
  EXPECT_CUDA(driver().cuMemsetD32Async(memory.address(), 1, 0, stream));
  EXPECT_EQ(read_word(memory.address()), 0xEEEE'EEEEu);
}

TEST_F(Sets, HalfWordsMustBeAligned) {
  const GivenStream stream;
  const Guarded memory{64};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD16(memory.address() + 1, 1, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD16Async(memory.address() + 1, 1, 4, stream));
}

TEST_F(Sets, WordsMustBeAligned) {
  const GivenStream stream;
  const Guarded memory{64};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD32(memory.address() + 2, 1, 4));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD32Async(memory.address() + 1, 1, 4, stream));
}

TEST_F(Sets, PastTheEndIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenBlocking memory{2 * MiB};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(memory.address(), 1, 2 * MiB + 1));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD32Async(memory.address() + 4, 1, 2 * MiB / 4, stream));
}

TEST_F(Sets, ARectanglePastTheEndIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenBlocking memory{2 * MiB};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD2D8(memory.address(), 1 * MiB, 1, 1 * MiB, 3));
}

TEST_F(Sets, AFreedAllocationIsRefused) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  GivenBlocking memory{2 * MiB};
  const CUdeviceptr gone = memory.address();
  ASSERT_CUDA(memory.free());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemsetD8(gone, 1, 4));
}

TEST_F(Sets, HostMemoryIsRefused) {
  std::vector<std::byte> host(4096);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemsetD8(reinterpret_cast<CUdeviceptr>(host.data()), 1, 4096));
}

TEST_F(Sets, PinnedHostMemoryMayBeSet) {
  PinnedWords words{64};
  ASSERT_CUDA(driver().cuMemsetD32(reinterpret_cast<CUdeviceptr>(words.data()), 12, 64));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(words[63], 12u);
}

}  // namespace
}  // namespace cuvmm::test
