// SPDX-License-Identifier: Apache-2.0
// How blocks are built, and what happens to freed ones while memory is plentiful.
#include <set>

#include "alloc_windows_world.hpp"
#include "support/faulty_driver.hpp"

namespace cuvmm::test {
namespace {

TEST_F(WindowsTest, SizesRoundUpTo512BytesAndNoFurther) {
  WindowsWorld world{driver(), 64 * MiB};
  EXPECT_EQ(world.block(64 * KiB).granted(), 64 * KiB);
  EXPECT_EQ(world.block(64 * KiB + 1).granted(), 64 * KiB + 512);
  EXPECT_EQ(world.block(3 * MiB - 511).granted(), 3 * MiB);
}

TEST_F(WindowsTest, TwentyBlocksOf100KiBShareAChunk) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.blocks(20, 100 * KiB);
  EXPECT_EQ(world.physical(), world.granule);
  blocks.push_back(&world.block(100 * KiB));
  EXPECT_EQ(world.physical(), 2 * world.granule);
  expect_true(world.windows(), blocks);
}

TEST_F(WindowsTest, EveryBlockHasItsOwnAddressGranules) {
  WindowsWorld world{driver(), 64 * MiB};
  std::set<CUdeviceptr> granules;
  std::size_t expected = 0;
  for (const Size size : {64 * KiB, 100 * KiB, 1 * MiB, 2 * MiB, 5 * MiB, 5 * MiB, 17 * MiB}) {
    const WindowBlock& block = world.block(size);
    const CUdeviceptr first = round_down(block.address(), world.granule);
    for (CUdeviceptr at = first; at < block.end(); at += world.granule, ++expected) {
      granules.insert(at);
    }
  }
  EXPECT_EQ(granules.size(), expected);
}

TEST_F(WindowsTest, BlocksOfAllSizesKeepTheirContentsBesideEachOther) {
  WindowsWorld world{driver(), 512 * MiB};
  std::vector<WindowBlock*> blocks;
  for (const Size size : {64 * KiB, 100 * KiB, 333 * KiB, 700 * KiB, 1 * MiB, 1536 * KiB, 2 * MiB,
                          2 * MiB + 512, 3 * MiB, 5 * MiB + 300 * KiB, 16 * MiB, 17 * MiB}) {
    for (int i = 0; i < 7; ++i) {
      blocks.push_back(&world.block(size));
      fill_pattern(blocks.back()->address(), blocks.back()->granted(), blocks.size());
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    expect_pattern(blocks[i]->address(), blocks[i]->granted(), i + 1);
  }
  expect_true(world.windows(), blocks);
}

TEST_F(WindowsTest, PiecesOfTwoLargeBlocksShareAChunk) {
  WindowsWorld world{driver(), 64 * MiB};
  const WindowBlock& one = world.block(3 * MiB);
  const WindowBlock& other = world.block(3 * MiB);
  EXPECT_EQ(world.physical(), 3 * world.granule) << "a chunk each, and one for both";
  const bool one_is_first = !is_multiple(one.address(), world.granule);
  const bool other_is_first = !is_multiple(other.address(), world.granule);
  EXPECT_NE(one_is_first, other_is_first);
}

TEST_F(WindowsTest, BlocksFrom16MiBUpBeginAtAGranule) {
  WindowsWorld world{driver(), 512 * MiB};
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(is_multiple(world.block(16 * MiB + 300 * KiB).address(), world.granule));
  }
}

TEST_F(WindowsTest, ALargeBlockHasOneChunkForItsWholeGranules) {
  WindowsWorld world{driver(), 256 * MiB};
  const WindowBlock& block = world.block(65 * MiB);
  const auto chunks = world->chunks_behind(block).chunks;
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].chunk->size(), 64 * MiB);
  EXPECT_EQ(chunks[1].offset, 64 * MiB);
  EXPECT_EQ(chunks[1].chunk->size(), world.granule);
}

TEST_F(WindowsTest, ACachedWindowServesTheNextBlockOfItsSizeWithoutTheDriver) {
  FaultyDriver watched{driver()};
  WindowsWorld world{watched, 64 * MiB};
  for (const Size size : {100 * KiB, 1 * MiB, 3 * MiB, 20 * MiB}) {
    WindowBlock& block = world.block(size);
    const CUdeviceptr address = block.address();
    watched.forget_calls();
    world->free(block);
    EXPECT_EQ(world.block(size).address(), address);
    EXPECT_TRUE(watched.names().empty()) << watched.names().front();
  }
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, ManySizesOfFewBlocksShareChunks) {
  WindowsWorld world{driver(), 256 * MiB};
  std::vector<WindowBlock*> blocks;
  Size bytes = 0;
  for (Size i = 0; i < 200; ++i) {
    blocks.push_back(&world.block(64 * KiB + i * 512));
    bytes += blocks.back()->granted();
  }
  EXPECT_LE(world.physical(), bytes + bytes / 4 + 4 * world.granule);
  expect_true(world.windows(), blocks);
}

TEST_F(WindowsTest, RefusesZeroBytesAndMoreThanTheCard) {
  FaultyDriver watched{driver()};
  WindowsWorld world{watched, 64 * MiB};
  world->free(world.block(20 * MiB));
  watched.forget_calls();
  EXPECT_EQ(outcome(world->allocate(0)), "invalid argument");
  for (const Size size : {64 * MiB + 1, Size{1} << 45, unlimited - 100, unlimited}) {
    EXPECT_EQ(outcome(world->allocate(size)), "out of memory");
  }
  for (const std::string& name : watched.names()) {
    EXPECT_EQ(name, "cuMemGetInfo") << "not even what is cached is given up for it";
  }
}

TEST_F(WindowsTest, NewWindowsTakeAddressesOfCachedOnesWhenNoneAreLeft) {
  WindowsWorld world{driver(), 256 * MiB, [](WindowSettings& settings) {
                       settings.reserve_step = 16 * MiB;
                       settings.reserve_most = 64 * MiB;
                     }};
  const auto blocks = world.blocks(32, 100 * KiB);
  EXPECT_EQ(outcome(world->allocate(200 * KiB)), "out of addresses");
  world.free_all(blocks);
  EXPECT_OK(world->allocate(200 * KiB));
  EXPECT_OK(world->allocate(10 * MiB));
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, RefusesSettingsThatCannotWork) {
  WindowsWorld world{driver(), 64 * MiB};
  const auto with = [&](WindowSettings settings) {
    return outcome(Windows::create(driver(), world.store, world.order, settings));
  };
  EXPECT_EQ(with({.granule = 3 * MiB, .device_memory = GiB}), "invalid argument");
  EXPECT_EQ(with({.granule = 4 * KiB, .device_memory = GiB}), "invalid argument");
  EXPECT_EQ(with({.device_memory = 0}), "invalid argument");
}

TEST_F(WindowsTest, AFreeThatIsPendingIsNotHandedOut) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& block = world.block(1 * MiB);
  const CUdeviceptr address = block.address();
  world->free_after(block, {.stream = 3, .tick = 7});
  WindowBlock& other = world.block(1 * MiB);
  EXPECT_NE(other.address(), address);
  world.order.finish(3, 7);
  EXPECT_EQ(world.block(1 * MiB).address(), address);
  EXPECT_EQ(world.order.waits(), 0);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, AFreeWhoseWorkIsDoneIsHandedOutAtOnce) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& block = world.block(5 * MiB);
  const CUdeviceptr address = block.address();
  world.order.finish(3, 7);
  world->free_after(block, {.stream = 3, .tick = 7});
  EXPECT_EQ(world.block(5 * MiB).address(), address);
}

TEST_F(WindowsTest, AccessIsGivenToAllWindows) {
  NEEDS_DEVICES(2);
  WindowsWorld world{driver(), 64 * MiB};
  std::vector<WindowBlock*> blocks;
  for (const Size size : {100 * KiB, 3 * MiB, 3 * MiB, 4 * MiB, 17 * MiB}) {
    blocks.push_back(&world.block(size));
  }
  ASSERT_OK(world->set_access(read_write().with(1, Access::Read)));
  blocks.push_back(&world.block(1 * MiB));
  for (const WindowBlock* block : blocks) {
    EXPECT_EQ(rights(block->address(), 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(rights(block->end() - 1, 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
  }
  ASSERT_OK(world->set_access(read_write()));
  for (const WindowBlock* block : blocks) {
    EXPECT_EQ(rights(block->address(), 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  }
}

TEST_F(WindowsTest, AccessIsGivenToAllOrNone) {
  NEEDS_DEVICES(2);
  FaultyDriver faulty{driver()};
  WindowsWorld world{faulty, 64 * MiB, [](WindowSettings& settings) {
                       settings.reserve_step = 4 * MiB;  // several reservations: several calls
                     }};
  const auto blocks = world.blocks(6, 3 * MiB);
  faulty.fail_call(Call::cuMemSetAccess, 2, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(outcome(world->set_access(read_write().with(1))), "refused by the driver");
  ASSERT_EQ(faulty.faults(), 1u);
  faulty.stop_failing();
  for (const WindowBlock* block : blocks) {
    EXPECT_EQ(rights(block->address(), 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_EQ(rights(block->address(), 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
}

TEST_F(WindowsTest, CountersMatchTheBlocks) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& small = world.block(100 * KiB);
  world.block(5 * MiB);
  WindowCounters counters = world->counters();
  EXPECT_EQ(counters.live_blocks, 2u);
  EXPECT_EQ(counters.live_bytes, 5 * MiB + 100 * KiB);
  EXPECT_EQ(counters.physical_bytes, world.physical());
  EXPECT_EQ(counters.mapped_bytes, 8 * MiB);
  EXPECT_GE(counters.reserved_bytes, counters.mapped_bytes);
  world->free(small);
  counters = world->counters();
  EXPECT_EQ(counters.live_blocks, 1u);
  EXPECT_EQ(counters.cached_blocks, 1u);
  EXPECT_EQ(counters.cached_bytes, 100 * KiB);
}

TEST_F(WindowsTest, ReleasesEverythingLiveOrNot) {
  WindowsWorld world{driver(), 64 * MiB};
  world.block(100 * KiB);
  world->free(world.block(3 * MiB));
  world->free_after(world.block(9 * MiB), {.stream = 1, .tick = 1});
  world->release_all();
  EXPECT_EQ(world.physical(), 0u);
  const WindowCounters counters = world->counters();
  EXPECT_EQ(counters.live_blocks + counters.cached_blocks, 0u);
  EXPECT_EQ(counters.mapped_bytes + counters.reserved_bytes, 0u);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
  EXPECT_OK(world->allocate(3 * MiB));
}

}  // namespace
}  // namespace cuvmm::test
