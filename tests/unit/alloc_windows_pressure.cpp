// SPDX-License-Identifier: Apache-2.0
// What is done for an allocation when the card is full, in which order, and what is left alone.
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "alloc/reclaim_steps.hpp"
#include "alloc_windows_world.hpp"
#include "base/clock.hpp"
#include "support/faulty_driver.hpp"

namespace cuvmm::test {
namespace {

TEST_F(WindowsTest, ReleasesCachedWindowsBeforeItQuiescesTheDevice) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  const int begun = world.quiescence.begun();
  world.free_all(blocks);
  WindowBlock& whole = world.block(64 * MiB);
  EXPECT_EQ(world.quiescence.begun(), begun);
  world->free(whole);
  EXPECT_EQ(world.fill_with(100 * KiB).size(), 20u * 32u);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, ReleasesOnlyAsManyCachedWindowsAsNeeded) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  world.free_all(blocks);
  world.block(8 * MiB);
  EXPECT_EQ(world->counters().cached_blocks, blocks.size() - 8);
}

TEST_F(WindowsTest, PutsSmallBlocksWhereFreedOnesOfAnotherSizeLay) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(256 * KiB);
  for (const WindowBlock* block : blocks) mark(*block);
  const Size freed = world.free_every_second(blocks);
  world.quiescence.refuse();
  const auto others = world.fill_with(128 * KiB);
  EXPECT_EQ(others.size(), freed / (128 * KiB));
  for (const WindowBlock* block : blocks) expect_marked(*block);
  expect_true(world.windows(), others);
}

TEST_F(WindowsTest, WaitsForPendingFreesUnderPressure) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(2 * MiB);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    world->free_after(*blocks[i], {.stream = 2, .tick = i + 1});
  }
  EXPECT_EQ(outcome(world->allocate(32 * MiB)), "out of memory");
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
  world.order.let_waits_end();
  EXPECT_OK(world->allocate(32 * MiB));
  EXPECT_GT(world.order.waits(), 0);
}

TEST_F(WindowsTest, LooksBeforeItWaits) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(2 * MiB);
  for (WindowBlock* block : blocks) world->free_after(*block, {.stream = 2, .tick = 1});
  world.order.found_when_looked_at(1);
  EXPECT_OK(world->allocate(64 * MiB));
  EXPECT_EQ(world.order.waits(), 0);
}

TEST_F(WindowsTest, MovesLivePiecesTogetherWhenNothingElseHelps) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(512 * KiB);
  for (const WindowBlock* block : blocks) mark(*block);
  const Size freed = world.free_every_second(blocks);
  const auto addresses = addresses_of(blocks);

  const int begun = world.quiescence.begun();
  WindowBlock& large = world.block(freed);
  EXPECT_EQ(world.quiescence.begun(), begun + 1);
  EXPECT_FALSE(world.quiescence.is_quiet());
  fill_pattern(large.address(), large.granted(), 1);
  EXPECT_EQ(addresses_of(blocks), addresses);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  blocks.push_back(&large);
  expect_true(world.windows(), blocks);
  const WindowCounters counters = world->counters();
  EXPECT_EQ(counters.compacted_bytes, counters.compacted_blocks * 512 * KiB);
  EXPECT_EQ(counters.compacted_chunks, 16u) << "of 32 chunks that were half full";
  EXPECT_EQ(counters.compacted_blocks, 32u) << "nothing is moved twice, nor for nothing";
}

TEST_F(WindowsTest, ACardThatIsCompletelyFullNeedsNoMemoryToMoveAnything) {
  // Not cuvmm's limit: the driver itself has nothing left.
  const GivenBallast ballast{128 * MiB};
  WindowsWorld world{driver(), unlimited / 2};
  auto blocks = world.fill_with(1 * MiB);
  EXPECT_GE(blocks.size(), 100u);
  EXPECT_EQ(outcome(world.store.take({world.granule, world.here, Export::No})), "out of memory");
  for (const WindowBlock* block : blocks) mark(*block);
  const Size freed = world.free_every_second(blocks);
  WindowBlock& large = world.block(round_down(freed, world.granule));
  mark(large);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  expect_marked(large);
  EXPECT_GT(world->counters().compacted_blocks, 0u);
}

TEST_F(WindowsTest, MovesLittleMoreThanNeeded) {
  WindowsWorld world{driver(), 512 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  world.free_every_second(blocks);
  world.block(8 * MiB);
  EXPECT_LE(world->counters().compacted_chunks, 4u + 16u);
}

TEST_F(WindowsTest, QuiescesTheDeviceOnlyForEnoughGain) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  const Size freed = world.free_every_second(blocks);
  const int begun = world.quiescence.begun();
  EXPECT_EQ(outcome(world->allocate(freed + 2 * MiB)), "out of memory");
  EXPECT_EQ(world.quiescence.begun(), begun);
  EXPECT_EQ(world->counters().compacted_blocks, 0u);
}

TEST_F(WindowsTest, PlansNothingIfLiveMemoryMayNotMove) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  const Size freed = world.free_every_second(blocks);
  const int begun = world.quiescence.begun();
  world.quiescence.rule_out();
  EXPECT_EQ(outcome(world->allocate(freed)), "out of memory");
  EXPECT_EQ(world.quiescence.begun(), begun);
}

TEST_F(WindowsTest, AnswersOutOfMemoryInTimeBesideWorkThatNeverEnds) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  const Size freed = world.free_every_second(blocks);
  world.quiescence.refuse();
  const std::uint64_t begin = now_ns();
  const auto block = world->allocate(freed);
  EXPECT_LT(now_ns() - begin, 20'000'000'000u);
  ASSERT_EQ(outcome(block), "out of memory");
  EXPECT_EQ(block.error().asked, freed);
  EXPECT_LT(block.error().available, freed);
  EXPECT_NE(block.error().tried & ReclaimSteps::LiveBlocks, 0U);
  EXPECT_EQ(world.quiescence.begun(), 1);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, AllWaitsOfOneAllocationEndAtTheSameTime) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  world->free_after(*blocks.back(), {1, 1});
  blocks.pop_back();
  const Size freed = world.free_every_second(blocks);
  world.order.let_waits_end();
  MemoryPressure pressure{Duration{5'000'000}};
  EXPECT_EQ(outcome(world->allocate(freed, {}, pressure)), "ok");
  EXPECT_EQ(world.order.waits(), 1);
  EXPECT_EQ(world.order.waited_until(), pressure.until());
  EXPECT_EQ(world.quiescence.begun(), 1);
  EXPECT_EQ(world.quiescence.begun_until(), pressure.until());
}

TEST_F(WindowsTest, NothingLiveMovesWithoutQuiescence) {
  WindowsWorld world{driver(), 64 * MiB,
                     [](WindowSettings& settings) { settings.quiescence = nullptr; }};
  auto blocks = world.fill_with(1 * MiB);
  const Size freed = world.free_every_second(blocks);
  EXPECT_EQ(outcome(world->allocate(freed)), "out of memory");
  EXPECT_EQ(world->counters().compacted_blocks, 0u);
}

TEST_F(WindowsTest, APinnedBlockKeepsItsChunk) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(256 * KiB);
  for (const WindowBlock* block : blocks) mark(*block);
  world.free_every_second(blocks);
  std::vector<std::pair<WindowBlock*, ChunkRef>> pinned;
  for (std::size_t i = 0; i < blocks.size(); i += 16) {
    world->pin(*blocks[i], pin::sync_memops);
    pinned.emplace_back(blocks[i], world->chunks_behind(*blocks[i]).chunks[0].chunk);
  }
  WindowBlock& large = world.block(16 * MiB);
  EXPECT_GT(world->counters().compacted_blocks, 0u);
  for (const auto& [block, chunk] : pinned) {
    EXPECT_TRUE(world->chunks_behind(*block).chunks[0].chunk == chunk);
  }
  for (const WindowBlock* block : blocks) expect_marked(*block);
  blocks.push_back(&large);
  expect_true(world.windows(), blocks);
}

TEST_F(WindowsTest, AChunkWithAPinnedBlockTakesNoOthers) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& pinned = world.block(256 * KiB);
  WindowBlock& freed = world.block(256 * KiB);
  world->free(freed);
  world->pin(pinned, pin::sync_memops);
  const ChunkRef chunk = world->chunks_behind(pinned).chunks[0].chunk;
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(world->chunks_behind(world.block(256 * KiB)).chunks[0].chunk == chunk);
  }
  world->unpin(pinned, pin::sync_memops);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
  std::set<bool> used_again;
  for (int i = 0; i < 8; ++i) {
    used_again.insert(world->chunks_behind(world.block(256 * KiB)).chunks[0].chunk == chunk);
  }
  EXPECT_TRUE(used_again.count(true) != 0);
}

TEST_F(WindowsTest, TheSlotOfAnExportedBlockIsNotReused) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& exported = world.block(256 * KiB);
  WindowBlock& neighbour = world.block(256 * KiB);
  world->pin(exported, pin::exported);
  const ChunkRef chunk = world->chunks_behind(exported).chunks[0].chunk;
  world->free(exported);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(world->chunks_behind(world.block(256 * KiB)).chunks[0].chunk == chunk);
  }
  EXPECT_TRUE(world->chunks_behind(neighbour).chunks[0].chunk == chunk);
  world->free(neighbour);
  EXPECT_TRUE(chunk.is_sole()) << "the last of its blocks lets the chunk go";
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, TheChunksOfAnExportedLargeBlockAreNotReused) {
  WindowsWorld world{driver(), 64 * MiB};
  for (const Size size : {8 * MiB, 9 * MiB}) {
    WindowBlock& exported = world.block(size);
    world->pin(exported, pin::legacy_ipc);
    const auto chunks = world->chunks_behind(exported).chunks;
    world->free(exported);
    for (const MappedChunk& mapped : chunks) EXPECT_TRUE(mapped.chunk.is_sole());
    EXPECT_FALSE(world.block(size).pinned());
  }
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

// A device may reach them by their physical location, however long it likes.
TEST_F(WindowsTest, ChunksThatDevicesMayHoldAreReleasedAndNotReused) {
  WindowsWorld world{driver(), 64 * MiB};
  for (const std::uint8_t why : {pin::dma_buf, pin::multicast, pin::peer_tokens}) {
    for (const Size size : {8 * MiB, 256 * KiB}) {
      WindowBlock& held = world.block(size);
      const Size before = world.physical();
      world->pin(held, why);
      world->free(held);
      EXPECT_EQ(world.physical(), before - round_up(size, world.granule));
      EXPECT_EQ(world.store.counters(world.here).physical_free, 0U);
    }
  }
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, ReleasesMemoryThatOthersRequestThroughTheStore) {
  WindowsWorld world{driver(), 64 * MiB};
  world.free_all(world.fill_with(300 * KiB));
  EXPECT_GT(world.physical(), 32 * MiB);
  const auto chunks = world.store.take_many({world.granule, world.here, Export::No}, 32);
  EXPECT_OK(chunks);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, TrimKeepsAsMuchAsItIsTold) {
  WindowsWorld world{driver(), 64 * MiB};
  WindowBlock& live = world.block(2 * MiB);
  world.free_all(world.blocks(10, 4 * MiB));
  EXPECT_EQ(world->trim(40 * MiB), 0u);
  EXPECT_EQ(world->trim(9 * MiB), 32 * MiB) << "in whole windows";
  EXPECT_EQ(world.physical(), 10 * MiB);
  EXPECT_EQ(world->trim(0), 8 * MiB);
  EXPECT_EQ(world.physical(), 2 * MiB);
  mark(live);
  expect_marked(live);
}

TEST_F(WindowsTest, CompactsForACallerThatIsAlreadyQuiescent) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  for (const WindowBlock* block : blocks) mark(*block);
  world.free_every_second(blocks);
  const auto stream = std::make_shared<CopyStream>(driver());
  const auto freed = world->compact(8 * MiB, {{stream, 0}});
  ASSERT_OK(freed);
  EXPECT_EQ(*freed, 8 * MiB);
  EXPECT_EQ(world.store.counters(world.here).physical_free, 8 * MiB);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  expect_true(world.windows(), blocks);
}

// A comb of 1 MiB blocks, and a compaction whose copies have not begun because they are queued
// behind other work, as on a device that is too busy.
class BusyCompaction : public WindowsTest {
 protected:
  void begin(Duration wait) {
    world_.emplace(driver(), 64 * MiB, [&](WindowSettings& settings) { settings.wait = wait; });
    blocks_ = world_->fill_with(1 * MiB);
    for (const WindowBlock* block : blocks_) mark(*block);
    freed_ = world_->free_every_second(blocks_);
    busy_.emplace(kernels(), world_->quiescence.stream());
    const int begun = world_->quiescence.begun();
    allocating_ = std::thread{[this] {
      const PrimaryContext context;
      large_ = (*world_)->allocate(freed_);
    }};
    while (world_->quiescence.begun() == begun) std::this_thread::yield();
    // The copies are submitted next but cannot run.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  void let_copies_run() { busy_->end(); }
  void end() { allocating_.join(); }
  void TearDown() override {
    if (allocating_.joinable()) allocating_.join();
    busy_.reset();
    world_.reset();
    WindowsTest::TearDown();
  }

  std::optional<WindowsWorld> world_;
  std::vector<WindowBlock*> blocks_;
  Size freed_ = 0;
  std::optional<SlowWork> busy_;
  std::thread allocating_;
  Result<WindowBlock*> large_ = Error{};
};

constexpr Duration long_enough{60'000'000};
constexpr Duration too_short{40'000};

TEST_F(BusyCompaction, CopiesThatDoNotEndInTimeLeaveEverythingWhereItWas) {
  begin(too_short);
  end();
  EXPECT_EQ(outcome(large_), "out of memory");
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
  // Blocks whose bytes are still to be copied are freed now, and others too.
  for (int i = 0; i < 20; ++i) {
    (*world_)->free(*blocks_.back());
    blocks_.pop_back();
  }
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
  (void)(*world_)->trim(0);
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
  let_copies_run();
  for (const WindowBlock* block : blocks_) expect_marked(*block);
  ASSERT_CUDA(synchronize()) << "no copy found its memory gone";

  WindowBlock& large = world_->block(freed_);
  for (const WindowBlock* block : blocks_) expect_marked(*block);
  blocks_.push_back(&large);
  expect_true(world_->windows(), blocks_);
  EXPECT_EQ((*world_)->counters().live_blocks, blocks_.size());
}

TEST_F(BusyCompaction, WindowsUsedByCopiesStayMapped) {
  begin(too_short);
  end();
  world_->free_all(blocks_);
  blocks_.clear();
  // Would release all cached windows, one after the other.
  (void)(*world_)->allocate(1900 * KiB);
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
  let_copies_run();
  ASSERT_CUDA(synchronize());
  EXPECT_OK((*world_)->allocate(32 * MiB));
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
}

TEST_F(BusyCompaction, ABlockThatIsPinnedWhileItIsCopiedStays) {
  begin(long_enough);
  std::vector<ChunkRef> chunks;
  for (WindowBlock* block : blocks_) {
    (*world_)->pin(*block, pin::peer_tokens);
    chunks.push_back((*world_)->chunks_behind(*block).chunks[0].chunk);
  }
  let_copies_run();
  end();
  EXPECT_EQ(outcome(large_), "out of memory");
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    EXPECT_TRUE((*world_)->chunks_behind(*blocks_[i]).chunks[0].chunk == chunks[i]);
    expect_marked(*blocks_[i]);
  }
  expect_true(world_->windows(), blocks_);
}

TEST_F(BusyCompaction, ABlockThatIsFreedWhileItIsCopiedIsFree) {
  begin(long_enough);
  world_->free_all(blocks_);
  blocks_.clear();
  EXPECT_EQ((*world_)->counters().live_blocks, 0u);
  let_copies_run();
  end();
  ASSERT_OK(large_);
  (*world_)->free(**large_);
  EXPECT_OK((*world_)->allocate(64 * MiB));
  EXPECT_EQ((*world_)->violation().value_or("nothing"), "nothing");
}

TEST_F(WindowsTest, AFreeDuringQuiescenceIsSafe) {
  WindowsWorld world{driver(), 64 * MiB};
  auto blocks = world.fill_with(1 * MiB);
  for (const WindowBlock* block : blocks) mark(*block);
  const Size freed = world.free_every_second(blocks);
  world.quiescence.during([&] {
    for (int i = 0; i < 3; ++i) {
      world->free(*blocks.back());
      blocks.pop_back();
    }
  });
  WindowBlock& large = world.block(freed);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  blocks.push_back(&large);
  expect_true(world.windows(), blocks);
}

}  // namespace
}  // namespace cuvmm::test
