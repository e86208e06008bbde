// SPDX-License-Identifier: Apache-2.0
// VMM_CACHE: how much unused memory of a device is kept.
#include <string_view>
#include <vector>

#include "alloc_memory_world.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

constexpr Size bound = 8 * MiB;

class BoundedCache : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    begin({.cache = SizeLimit::of_bytes(bound)});
  }
  // All device memory that is held but not by the program.
  Size kept() {
    const MemoryCounters counters = memory().counters(0);
    return counters.chunks.physical_free + counters.mapped_free;
  }
  void free_ordered(CUdeviceptr address) {
    EXPECT_EQ(memory().free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  }
  void wait() {
    EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
    memory().program_waited();
  }
};

TEST_F(BoundedCache, WithoutABoundAllIsKept) {
  begin({});
  EXPECT_EQ(memory().free(given(64 * MiB)), Answer{CUDA_SUCCESS});
  EXPECT_EQ(kept(), 64 * MiB);
}

// Memory that blocks of one size have left does not serve the next size as it is.
class GrowthOfBlockingMemory : public BoundedCache {
 protected:
  static constexpr Size spare = 256 * MiB;
  void SetUp() override {
    BoundedCache::SetUp();
    begin({});
  }
  // Holds `bytes` in blocks of one size, one after another size, beside `others`.
  void use_varying_sizes(Size bytes, Size others = 0) {
    for (Size size = 2 * MiB; size < 34 * MiB; size += 2 * MiB) {
      std::vector<CUdeviceptr> blocks;
      for (Size sum = 0; sum + size <= bytes; sum += size) blocks.push_back(given(size));
      EXPECT_LE(memory().counters(0).physical_held(), others + bytes + spare);
      for (const CUdeviceptr block : blocks) EXPECT_EQ(memory().free(block), Answer{CUDA_SUCCESS});
    }
    EXPECT_EQ(memory().violation(), std::nullopt);
  }
};

TEST_F(GrowthOfBlockingMemory, IsLittleMoreThanWasInUse) {
  use_varying_sizes(64 * MiB);
  EXPECT_GT(kept(), spare) << "what was in use, and some more, is kept";
}

TEST_F(GrowthOfBlockingMemory, IsLeftToABoundThatTheUserSets) {
  begin({.cache = SizeLimit::parse("100%").value()});
  for (Size size = 2 * MiB; size < 40 * MiB; size += 2 * MiB) {
    EXPECT_EQ(memory().free(given(size)), Answer{CUDA_SUCCESS});
  }
  EXPECT_EQ(kept(), 380 * MiB);
}

// Each piece of a chunk that small blocks shared is unmapped by a call of its own.
TEST_F(GrowthOfBlockingMemory, TakesFewCallsToReleaseSmallBlocks) {
  std::vector<CUdeviceptr> blocks;
  for (Size sum = 0; sum < 320 * MiB; sum += 64 * KiB) blocks.push_back(given(64 * KiB));
  for (const CUdeviceptr block : blocks) EXPECT_EQ(memory().free(block), Answer{CUDA_SUCCESS});
  const Size before = kept();
  EXPECT_EQ(memory().free(given(300 * MiB)), Answer{CUDA_SUCCESS});
  EXPECT_GE(kept(), before + 300 * MiB - 2 * 2 * MiB);
}

TEST_F(GrowthOfBlockingMemory, LeavesLiveMemoryAlone) {
  const CUdeviceptr live = given(30 * MiB);
  EXPECT_CUDA(driver().cuMemsetD32(live, 7, 30 * MiB / 4));
  EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
  use_varying_sizes(32 * MiB, 30 * MiB);
  std::uint32_t there = 0;
  EXPECT_CUDA(driver().cuMemcpyDtoH(&there, live + 30 * MiB - 4, sizeof there));
  EXPECT_EQ(there, 7U);
}

TEST_F(GrowthOfBlockingMemory, EndsAlsoWhereStreamOrderedMemoryGrows) {
  EXPECT_EQ(memory().free(given(400 * MiB)), Answer{CUDA_SUCCESS});
  given_ordered(400 * MiB);
  EXPECT_LE(memory().counters(0).physical_held(), 400 * MiB + spare);
}

// Natively, a pool's program decides how much the pool keeps.
TEST_F(GrowthOfBlockingMemory, LeavesWhatPoolsKeep) {
  free_ordered(given_ordered(spare + 64 * MiB));
  const auto of_pools = [this] {
    Size bytes = 0;
    for (const RegionUse& use : memory().holdings().regions(0)) {
      if (std::string_view{use.what} == "stream-ordered") bytes += use.held - use.used;
    }
    return bytes;
  };
  const Size before = of_pools();
  ASSERT_GE(before, spare + 64 * MiB);
  given(2 * MiB);
  EXPECT_EQ(of_pools(), before);
}

TEST_F(BoundedCache, BlockingMemoryBeyondItIsReleasedAtTheFree) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(given(6 * MiB));
  for (const CUdeviceptr block : blocks) {
    EXPECT_EQ(memory().free(block), Answer{CUDA_SUCCESS});
    EXPECT_LE(kept(), bound);
  }
  EXPECT_GE(kept(), 6 * MiB) << "what it allows is kept";
  EXPECT_LE(memory().counters(0).physical_held(), bound);
  EXPECT_EQ(memory().violation(), std::nullopt);
}

TEST_F(BoundedCache, StreamOrderedMemoryBeyondItIsReleasedAtAWait) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(given_ordered(6 * MiB));
  for (const CUdeviceptr block : blocks) free_ordered(block);
  wait();
  EXPECT_LE(kept(), bound);
  EXPECT_GT(kept(), 0U) << "what it allows is kept";
  EXPECT_EQ(memory().violation(), std::nullopt);
}

TEST_F(BoundedCache, BothKindsCountTogether) {
  const CUdeviceptr ordered = given_ordered(8 * MiB);
  const CUdeviceptr blocking = given(8 * MiB);
  free_ordered(ordered);
  EXPECT_EQ(memory().free(blocking), Answer{CUDA_SUCCESS});
  wait();
  EXPECT_LE(kept(), bound);
}

TEST_F(BoundedCache, LiveMemoryIsLeftAlone) {
  const CUdeviceptr held = given(32 * MiB);
  const CUdeviceptr ordered = given_ordered(32 * MiB);
  EXPECT_EQ(memory().free(given(16 * MiB)), Answer{CUDA_SUCCESS});
  wait();
  EXPECT_LE(kept(), bound);
  EXPECT_CUDA(driver().cuMemsetD8(held, 1, 32 * MiB));
  EXPECT_CUDA(driver().cuMemsetD8(ordered, 1, 32 * MiB));
  EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
}

TEST_F(BoundedCache, OfNothingKeepsNothing) {
  begin({.cache = SizeLimit::of_bytes(0)});
  EXPECT_EQ(memory().free(given(4 * MiB)), Answer{CUDA_SUCCESS});
  free_ordered(given_ordered(4 * MiB));
  wait();
  EXPECT_EQ(memory().counters(0).physical_held(), 0U);
}

// A refused release is tried again, and counts as held until then.
TEST_F(BoundedCache, RecoversAfterRefusedReleases) {
  const CUdeviceptr first = given(16 * MiB);
  const CUdeviceptr second = given(16 * MiB);
  faulty.fail_from(1, CUDA_ERROR_UNKNOWN, Call::cuMemRelease);
  EXPECT_EQ(memory().free(first), Answer{CUDA_SUCCESS});
  faulty.stop_failing();
  EXPECT_EQ(memory().free(second), Answer{CUDA_SUCCESS});
  wait();
  EXPECT_LE(memory().counters(0).physical_held(), bound);
  EXPECT_EQ(memory().violation(), std::nullopt);
}

}  // namespace
}  // namespace cuvmm::test
