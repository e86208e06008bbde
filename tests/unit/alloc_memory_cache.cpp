// SPDX-License-Identifier: Apache-2.0
// VMM_CACHE: how much unused memory of a device is kept.
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
