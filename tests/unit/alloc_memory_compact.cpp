// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory that the program has freed all over a full device.
#include "alloc_memory_world.hpp"
#include "driver/current_context.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class MemoryCompaction : public MemoryTest {
 protected:
  static constexpr Size limit = 64 * MiB;
  static constexpr Size block = 512 * KiB;

  // Fills the device and frees every second block.
  void given_comb(Compact compact) {
    given_comb({.limit = SizeLimit::of_bytes(limit), .compact = compact});
  }
  void given_comb(const MemorySettings& settings) {
    begin(settings);
    std::vector<CUdeviceptr> all;
    for (Size had = 0; had < limit; had += block) {
      all.push_back(given_ordered(block));
      fill_pattern(all.back(), block, all.back());
    }
    EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % 2 == 0) {
        live.push_back(all[i]);
      } else {
        EXPECT_EQ(memory().free_ordered(all[i], StreamName{}), Answer{CUDA_SUCCESS});
      }
    }
    EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
  }
  Answer ask(Size size) {
    CUdeviceptr address = 0;
    const Answer answer = memory().allocate_ordered(&address, size, StreamName{});
    if (answer == CUDA_SUCCESS) fill_pattern(address, size, 1);
    return answer;
  }
  void expect_intact() {
    for (const CUdeviceptr address : live) expect_pattern(address, block, address);
    EXPECT_EQ(memory().violation().value_or("nothing"), "nothing");
  }

  std::vector<CUdeviceptr> live;
};

TEST_F(MemoryCompaction, MostOfACombServesOneRequest) {
  given_comb(Compact::All);
  EXPECT_EQ(ask(limit / 2 * 6 / 10), Answer{CUDA_SUCCESS});
  expect_intact();
  EXPECT_GT(memory().counters(0).moved.bytes, 0u);
}

TEST_F(MemoryCompaction, BlockingMemoryIsTakenFromItToo) {
  given_comb(Compact::All);
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, limit / 2 * 6 / 10), Answer{CUDA_SUCCESS});
  expect_intact();
}

TEST_F(MemoryCompaction, BlockingMemoryIsTakenFromItOnAFullDeviceWithoutALimit) {
  std::size_t free = 0;
  std::size_t all = 0;
  ASSERT_CUDA(driver().cuMemGetInfo(&free, &all));
  CUdeviceptr taken = 0;
  ASSERT_CUDA(driver().cuMemAlloc(&taken, free - limit));
  given_comb({.compact = Compact::All});
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, limit / 2 * 6 / 10), Answer{CUDA_SUCCESS});
  expect_intact();
  EXPECT_CUDA(driver().cuMemFree(taken));
}

TEST_F(MemoryCompaction, ServesAStreamWhoseContextIsNotCurrent) {
  NEEDS_DEVICES(2);
  given_comb(Compact::All);
  const GivenStream stream;
  const StreamName name{.handle = stream};
  CUdeviceptr address = 0;
  {
    const PrimaryContext there{1};
    EXPECT_EQ(memory().allocate_ordered(&address, limit / 2 * 6 / 10, name), Answer{CUDA_SUCCESS});
    EXPECT_EQ(current_device(driver()), 1);
  }
  ASSERT_CUDA(driver().cuCtxSetCurrent(primary()));
  expect_intact();
  EXPECT_GT(memory().counters(0).moved.bytes, 0u);
  EXPECT_EQ(memory().free_ordered(address, name), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryCompaction, HasToBeAskedFor) {
  given_comb(Compact::Auto);
  EXPECT_EQ(ask(limit / 2 * 6 / 10), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate(&address, limit / 2 * 6 / 10), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  expect_intact();
}

TEST_F(MemoryCompaction, NeedsToSeeAllWork) {
  given_comb(Compact::All);
  sees_everything = false;
  EXPECT_EQ(ask(limit / 2 * 6 / 10), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  expect_intact();
}

TEST_F(MemoryCompaction, DoesNotRunWhileAStreamIsCaptured) {
  given_comb(Compact::All);
  const std::uint64_t capture = captures.began();
  EXPECT_EQ(ask(limit / 2 * 6 / 10), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  captures.never_began(capture);
  expect_intact();
}

TEST_F(MemoryCompaction, DoesNotMovePinnedMemory) {
  given_comb(Compact::All);
  for (const CUdeviceptr address : live) memory().held().pin(address, pin::sync_memops);
  EXPECT_EQ(ask(limit / 2 * 6 / 10), Answer{CUDA_ERROR_OUT_OF_MEMORY});
  expect_intact();
}

// Its owner is a context.
TEST_F(MemoryCompaction, ImportedMemoryCanBePinned) {
  begin({});
  PlainAllocation opened;
  const CUdeviceptr address = CUdeviceptr{1} << 46;
  memory().held().list_opened(opened, address, 2 * MiB, primary());
  EXPECT_TRUE(memory().held().pin(address, pin::sync_memops));
  EXPECT_EQ(opened.pins(), pin::sync_memops);
  memory().held().unlist_opened(opened);
}

}  // namespace
}  // namespace cuvmm::test
