// SPDX-License-Identifier: Apache-2.0
// An arena's behaviours, one by one.
#include "alloc_arena_world.hpp"
#include "support/faulty_driver.hpp"

namespace cuvmm::test {
namespace {

TEST_F(ArenaTest, GrantsMultiplesOf512Bytes) {
  ArenaWorld& world = given();
  for (const Size asked : {Size{1}, Size{512}, Size{513}, 3 * MiB + 7}) {
    const Block& block = *GIVEN_VALUE(world.arena().allocate(asked, 1));
    EXPECT_EQ(block.granted(), round_up(asked, 512));
    EXPECT_EQ(block.address() % 512, 0u);
  }
}

TEST_F(ArenaTest, RefusesZeroBytesAndMoreThanItsAddresses) {
  ArenaWorld& world = given();
  EXPECT_EQ(outcome(world.arena().allocate(0, 1)), "invalid argument");
  for (const Size asked : {world.granules(257), unlimited, unlimited - 100}) {
    const auto answer = world.arena().allocate(asked, 1);
    EXPECT_EQ(outcome(answer), "out of memory");
    EXPECT_EQ(answer.error().asked, asked);
  }
}

TEST_F(ArenaTest, BlocksLieSideBySideAndKeepTheirContents) {
  ArenaWorld& world = given();
  const auto blocks = world.given_blocks(20, 700 * KiB);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i]->address(), blocks[i - 1]->end());
  }
  for (const Block* block : blocks) world.expect_intact(*block);
}

TEST_F(ArenaTest, AFreedBlockIsReusedWithoutADriverCall) {
  FaultyDriver counted{driver()};
  ArenaWorld world{counted, {}};
  Block& block = world.given_block(5 * MiB);
  const CUdeviceptr address = block.address();
  counted.forget_calls();
  world.free(block);
  const Block& again = *GIVEN_VALUE(world.arena().allocate(5 * MiB, 1));
  EXPECT_EQ(again.address(), address);
  EXPECT_TRUE(counted.names().empty());
  EXPECT_EQ(world.order.looks(), 0);
}

TEST_F(ArenaTest, CachedRangesOfAStreamMergeForAnotherSize) {
  ArenaWorld& world = given();
  const auto blocks = world.given_blocks(4, 1 * MiB);
  const CUdeviceptr first = blocks[0]->address();
  const Size mapped = world.arena().mapped_bytes();
  for (Block* block : blocks) world.free(*block);
  EXPECT_EQ(world.arena().counters().cached, 4 * MiB);
  EXPECT_EQ(world.given_block(4 * MiB).address(), first);
  EXPECT_EQ(world.arena().mapped_bytes(), mapped);
  EXPECT_EQ(world.arena().counters().cached, 0u);
}

TEST_F(ArenaTest, TheSmallestSufficientRangeIsTaken) {
  ArenaWorld& world = given();
  Block& large = world.given_block(3 * MiB);
  world.given_block(512);
  Block& fitting = world.given_block(1 * MiB + 512);
  world.given_block(512);
  Block& small = world.given_block(1 * MiB - 512);
  world.given_block(512);
  const CUdeviceptr expected = fitting.address();
  for (Block* block : {&large, &fitting, &small}) world.free_for_anyone(*block);
  EXPECT_EQ(world.given_block(1 * MiB).address(), expected);
}

TEST_F(ArenaTest, AnotherStreamDoesNotTakePendingMemory) {
  ArenaWorld& world = given();
  Block& block = world.given_block(2 * MiB, 1);
  const CUdeviceptr address = block.address();
  world.free(block, 1);
  EXPECT_NE(world.given_block(2 * MiB, 2).address(), address);
  EXPECT_NE(world.given_block(2 * MiB, no_stream).address(), address);
  EXPECT_EQ(world.given_block(2 * MiB, 1).address(), address);
}

// The whole chunk below is free, but pending on the other stream.
TEST_F(ArenaTest, TheRestOfANewChunkStaysWithItsStream) {
  ArenaWorld& world = given({.grow = Grow::Tight});
  world.free(world.given_block(world.granules(1), 1), 1);
  Block& block = world.given_block(1 * MiB, 2);
  const CUdeviceptr address = block.address();
  const Size in_use = world.store.counters(world.here).physical_in_use;
  world.free(block, 2);
  EXPECT_EQ(world.given_block(1 * MiB + 512, 2).address(), address);
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, in_use);
}

TEST_F(ArenaTest, AMissLeavesUnusableCachesOfOtherStreamsAlone) {
  ArenaWorld& world = given();
  Block& block = world.given_block(64 * KiB, 1);
  world.free(block, 1);
  world.given_block(1 * MiB, 2);
  EXPECT_EQ(world.arena().counters().cached, 64 * KiB);
  world.order.finish(1);
  world.given_block(2 * MiB, 2);
  EXPECT_EQ(world.arena().counters().cached, 0U);
}

TEST_F(ArenaTest, AnotherStreamTakesMemoryOrderedBeforeItsWork) {
  ArenaWorld& world = given();
  Block& block = world.given_block(2 * MiB, 1);
  const CUdeviceptr address = block.address();
  world.free(block, 1);
  world.order.order(1, 2);
  EXPECT_NE(world.given_block(2 * MiB, 3).address(), address);
  EXPECT_EQ(world.given_block(2 * MiB, 2).address(), address);
}

TEST_F(ArenaTest, AnotherStreamTakesMemoryWhoseWorkIsDone) {
  ArenaWorld& world = given();
  Block& block = world.given_block(2 * MiB, 1);
  const CUdeviceptr address = block.address();
  world.free(block, 1);
  world.order.finish(1);
  EXPECT_EQ(world.given_block(2 * MiB, 2).address(), address);
}

// A free range whose use becomes impossible while it is looked at must not be taken for a place.
TEST_F(ArenaTest, TheSearchAsksAboutEachRangeOnce) {
  ArenaWorld& world = given({.limit_granules = 4});
  world.order.let_waits_succeed(false);
  world.free(world.given_block(world.granules(2), 1), 1);
  world.order.alternate_can_follow();
  const Result<Block*> block = world.arena().allocate(world.granules(4), 2);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error().kind, ErrorKind::OutOfMemory);
}

TEST_F(ArenaTest, MemoryFreedOnAnotherStreamBelongsToThatStream) {
  ArenaWorld& world = given();
  Block& block = world.given_block(2 * MiB, 1);
  const CUdeviceptr address = block.address();
  world.free(block, 2);
  EXPECT_NE(world.given_block(2 * MiB, 1).address(), address);
  EXPECT_EQ(world.given_block(2 * MiB, 2).address(), address);
}

TEST_F(ArenaTest, PendingNeighboursOfTwoStreamsMergeOnceTheyAreDone) {
  ArenaWorld& world = given({.limit_granules = 2});
  Block& one = world.given_block(2 * MiB, 1);
  Block& other = world.given_block(2 * MiB, 2);
  ASSERT_EQ(other.address(), one.end());
  const CUdeviceptr address = one.address();
  world.free(one, 1);
  world.free(other, 2);
  world.order.finish_all();
  EXPECT_EQ(world.given_block(4 * MiB, 3).address(), address);
}

TEST_F(ArenaTest, FreeMemoryDoesNotWaitForANeighbourThatAnotherStreamFreed) {
  ArenaWorld& world = given();
  world.free_for_anyone(world.given_block(64 * MiB, 1));
  const Size mapped = world.arena().mapped_bytes();
  world.free(world.given_block(3 * MiB, 1), 2);
  world.given_block(48 * MiB, 1);
  EXPECT_EQ(world.arena().mapped_bytes(), mapped);
}

// A producer allocates on its stream, and a consumer frees on another one. Only the work before the
// last free is still running.
TEST_F(ArenaTest, MemoryHandedOverAgainAndAgainNeedsNoMore) {
  ArenaWorld& world = given();
  Size mapped = 0;
  for (int i = 0; i < 100; ++i) {
    Block& block = world.given_block(3 * MiB, 1);
    world.order.finish(2);
    world.free(block, 2);
    if (i == 10) mapped = world.arena().mapped_bytes();
  }
  EXPECT_EQ(world.arena().mapped_bytes(), mapped);
}

// A program may make a stream for each request.
TEST_F(ArenaTest, WhatManyStreamsHaveFreedIsJoined) {
  ArenaWorld& world = given({.grow = Grow::Tight});
  for (StreamId stream = 1; stream <= 5000; ++stream) {
    world.free(world.given_block(1 * KiB, stream), stream);
    world.order.finish(stream);
    ASSERT_GT(world.arena().counters().largest_free, world.granules(1) / 4) << stream;
  }
}

TEST_F(ArenaTest, AFreeRangeAtTheEndIsExtended) {
  ArenaWorld& world = given();
  Block& block = world.given_block(world.granules(3));
  const CUdeviceptr address = block.address();
  world.free_for_anyone(block);
  EXPECT_EQ(world.given_block(world.granules(5)).address(), address);
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(5));
}

TEST_F(ArenaTest, AFreeRangeBehindAHoleIsExtendedDownwards) {
  ArenaWorld& world = given({.reserve_granules = 12});
  Block& first = world.given_block(world.granules(2));
  Block& hole = world.given_block(world.granules(4));
  Block& behind = world.given_block(world.granules(3));
  world.given_block(world.granules(2));
  world.free_for_anyone(hole);
  world.arena().trim(0);
  world.free_for_anyone(behind);
  // Three granules are there and two are missing, both at the end and before it, but the end is not
  // free.
  const Block& block = world.given_block(world.granules(5));
  EXPECT_EQ(block.address(), first.end() + world.granules(2));
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(9));
}

TEST_F(ArenaTest, UsesLargeChunksWhileMemoryIsPlentiful) {
  ArenaWorld& world = given({.largest_chunk = 16 * MiB});
  world.given_block(64 * MiB);
  EXPECT_EQ(world.arena().counters().mapped_chunks, 4u);
  EXPECT_EQ(world.arena().mapped_bytes(), 64 * MiB);
}

// Only this arena could use the rest of the chunk.
TEST_F(ArenaTest, ASmallBlockDoesNotTakeALargeFreeChunkIfMemoryIsShort) {
  ArenaWorld& world = given({.limit_granules = 8});
  {
    const ChunkRef large =
        GIVEN_VALUE(world.store.take({world.granules(8), world.here, Export::No}));
  }
  ASSERT_EQ(world.store.counters(world.here).physical_free, world.granules(8));
  world.given_block(512);
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, world.granules(1));
  EXPECT_OK(world.store.take({world.granules(7), world.here, Export::No}));
}

TEST_F(ArenaTest, SmallFreeChunksServeALargeBlockIfMemoryIsShort) {
  ArenaWorld& world =
      given({.limit_granules = 4, .largest_chunk = 4 * usual_granule, .share_of_room = 1});
  std::vector<ChunkRef> small;
  for (int i = 0; i < 4; ++i) {
    small.push_back(GIVEN_VALUE(world.store.take({world.granule, world.here, Export::No})));
  }
  small.clear();
  world.given_block(world.granules(4));
  EXPECT_EQ(world.arena().counters().mapped_chunks, 4U);
}

TEST_F(ArenaTest, CountersMatchTheBlocks) {
  ArenaWorld& world = given();
  Block& kept = world.given_block(1 * MiB);
  Block& cached = world.given_block(512 * KiB);
  Block& freed = world.given_block(256 * KiB);
  world.free(cached);
  world.free_for_anyone(freed);
  const ArenaCounters counters = world.arena().counters();
  EXPECT_EQ(counters.live, kept.granted());
  EXPECT_EQ(counters.cached, 512 * KiB);
  EXPECT_EQ(counters.free, world.granule - 1 * MiB - 512 * KiB);
  EXPECT_EQ(counters.largest_free, counters.free);
  EXPECT_EQ(counters.mapped, world.granule);
  EXPECT_EQ(counters.reserved, world.granules(256));
  EXPECT_EQ(counters.blocks, 2u);
  EXPECT_EQ(counters.mapped_chunks, 1u);
}

TEST_F(ArenaTest, TrimReturnsWholeFreeChunksToTheStore) {
  ArenaWorld& world = given();
  const auto blocks = world.given_blocks(4, world.granules(1));
  world.free(*blocks[0]);
  world.free(*blocks[2]);
  EXPECT_EQ(world.arena().trim(0), 0u) << "work may still use them";
  world.order.finish_all();
  EXPECT_EQ(world.arena().trim(world.granules(3)), world.granules(1));
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(3));
  EXPECT_EQ(world.arena().trim(0), world.granules(1));
  EXPECT_EQ(world.store.counters(world.here).physical_free, world.granules(2));
  world.expect_intact(*blocks[1]);
  world.expect_intact(*blocks[3]);
}

TEST_F(ArenaTest, TrimStartsWithTheLeastRecentlyUsed) {
  ArenaWorld& world = given();
  const auto blocks = world.given_blocks(5, world.granules(1));
  world.free_for_anyone(*blocks[3]);
  world.free_for_anyone(*blocks[1]);
  ASSERT_EQ(world.arena().trim(world.granules(4)), world.granules(1));
  // The block freed first is a hole now, so only the other can be allocated without mapping.
  EXPECT_EQ(world.given_block(world.granules(1)).address(), blocks[0]->end());
}

TEST_F(ArenaTest, AccessCoversPresentAndFutureMappings) {
  NEEDS_DEVICES(2);
  ArenaWorld& world = given();
  const Block& before = world.given_block(world.granules(1));
  ASSERT_OK(world.arena().set_access(read_write(0).with(1, Access::Read)));
  const Block& after = world.given_block(world.granules(1));
  for (const Block* block : {&before, &after}) {
    EXPECT_EQ(rights(block->address(), 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(rights(block->address(), 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
}

TEST_F(ArenaTest, AccessThatTheDriverRefusesChangesNothing) {
  FaultyDriver faulty{driver()};
  ArenaWorld world{faulty, {}};
  world.given_block(world.granules(1));
  world.given_block(world.granules(1));
  faulty.fail_call(Call::cuMemSetAccess, 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(outcome(world.arena().set_access(AccessSet::of(0, Access::Read))),
            "refused by the driver");
  faulty.stop_failing();
  EXPECT_EQ(world.arena().access(), read_write());
  world.check();
}

TEST_F(ArenaTest, ItsEndReleasesEverything) {
  ArenaWorld& world = given();
  const auto blocks = world.given_blocks(3, world.granules(2));
  world.free(*blocks[1]);
  const Size reserved = reserved_addresses();
  world.arena().end();
  EXPECT_EQ(world.arena().mapped_bytes(), 0u);
  EXPECT_EQ(world.arena().counters().blocks, 0u);
  EXPECT_EQ(world.arena().counters().reserved, 0u);
  EXPECT_LT(reserved_addresses(), reserved);
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 0u);
  world.check();
  const auto more = world.arena().allocate(world.granules(1), no_stream);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().kind, ErrorKind::NotFound);
}

TEST_F(ArenaTest, EndsByItselfOnlyWhenNothingIsHeldOrPending) {
  ArenaWorld& world = given();
  Block& block = world.given_block(world.granules(2));
  EXPECT_FALSE(world.arena().end_if_empty());
  world.free(block);
  EXPECT_FALSE(world.arena().end_if_empty()) << "work may still use it";
  world.order.finish_all();
  const Size reserved = reserved_addresses();
  EXPECT_TRUE(world.arena().end_if_empty());
  EXPECT_TRUE(world.arena().end_if_empty()) << "asked again it says the same";
  EXPECT_LT(reserved_addresses(), reserved);
  EXPECT_FALSE(world.arena().allocate(world.granules(1), no_stream).ok());
}

TEST_F(ArenaTest, ABoundedCacheReleasesTheExcess) {
  ArenaWorld& world = given({.reserve_granules = 16});
  std::vector<Block*> blocks;
  blocks.reserve(3000);
  for (int i = 0; i < 3000; ++i) blocks.push_back(*world.arena().allocate(512, 1));
  for (Block* block : blocks) world.free(*block);
  const ArenaCounters counters = world.arena().counters();
  EXPECT_LE(counters.cached, 1024u * 512);
  EXPECT_EQ(counters.live, 0u);
  EXPECT_EQ(counters.cached + counters.free, counters.mapped);
}

}  // namespace
}  // namespace cuvmm::test
