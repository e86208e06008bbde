// SPDX-License-Identifier: Apache-2.0
// How an arena behaves when memory is short.
#include <array>
#include <atomic>
#include <thread>

#include "alloc/reclaim_steps.hpp"
#include "alloc_arena_world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class ArenaMoves : public ArenaTest {
 protected:
  // Blocks of one granule, as many as the limit allows. Every second one is free: for any stream,
  // or behind work of stream 1.
  std::vector<Block*> given_comb(ArenaWorld& world, bool is_done = true) {
    const auto blocks = world.given_blocks(world.chosen.limit_granules, world.granule);
    std::vector<Block*> live;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % 2 == 0) {
        live.push_back(blocks[i]);
      } else if (is_done) {
        world.free_for_anyone(*blocks[i]);
      } else {
        world.free(*blocks[i]);
      }
    }
    return live;
  }
};

TEST_F(ArenaMoves, AllFreeChunksOfACombServeOneBlock) {
  ArenaWorld& world = given({.limit_granules = 32});
  const auto live = given_comb(world);
  const Block& block = world.given_block(world.granules(16));
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(32));
  EXPECT_GE(world.arena().counters().moved_chunks, 15u);
  for (const Block* one : live) world.expect_intact(*one);
  world.expect_intact(block);
}

TEST_F(ArenaMoves, MovesOnlyAsMuchAsIsMissing) {
  ArenaWorld& world = given({.limit_granules = 8});
  const auto blocks = world.given_blocks(8, world.granule);
  for (const std::size_t i : {1u, 2u, 3u, 5u}) world.free_for_anyone(*blocks[i]);
  // Three lie together before a live block; the end has none.
  world.free_for_anyone(*blocks[7]);
  world.given_block(world.granules(4));
  EXPECT_EQ(world.arena().counters().moved_chunks, 3u);
}

TEST_F(ArenaMoves, NothingMovesWhileMemoryIsPlenty) {
  ArenaWorld& world = given({.limit_granules = 32});
  const auto blocks = world.given_blocks(8, world.granule);
  for (std::size_t i = 0; i < 8; i += 2) world.free_for_anyone(*blocks[i]);
  world.given_block(world.granules(4));
  EXPECT_EQ(world.arena().counters().moved_chunks, 0u);
}

TEST_F(ArenaMoves, TightMovesBeforeItGrows) {
  ArenaWorld& world = given({.limit_granules = 32, .grow = Grow::Tight});
  const auto blocks = world.given_blocks(8, world.granule);
  for (std::size_t i = 0; i < 8; i += 2) world.free_for_anyone(*blocks[i]);
  world.given_block(world.granules(6));
  EXPECT_EQ(world.arena().counters().moved_chunks, 4u);
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(10)) << "two were missing";
}

TEST_F(ArenaMoves, TightGrowsBeforeItWaits) {
  ArenaWorld& world = given({.limit_granules = 32, .grow = Grow::Tight});
  const auto blocks = world.given_blocks(8, world.granule);
  for (std::size_t i = 0; i < 8; i += 2) world.free(*blocks[i]);
  world.given_block(world.granules(4), 2);
  EXPECT_EQ(world.order.waits(), 0);
  EXPECT_EQ(world.arena().counters().moved_chunks, 0u);
}

TEST_F(ArenaMoves, PendingWorkIsWaitedForWhenNothingElseIsLeft) {
  ArenaWorld& world = given({.limit_granules = 8});
  const auto live = given_comb(world, false);
  EXPECT_OK(world.arena().allocate(world.granules(4), 1));
  EXPECT_GT(world.order.waits(), 0);
  for (const Block* one : live) world.expect_intact(*one);
}

TEST_F(ArenaMoves, PendingMemoryIsNeitherMovedNorReusedByAnotherStream) {
  ArenaWorld& world = given({.limit_granules = 8});
  const auto blocks = world.given_blocks(8, world.granule);
  const CUdeviceptr freed = blocks[3]->address();
  fill_pattern(freed, world.granule, 77);
  world.free(*blocks[3]);
  world.order.let_waits_succeed(false);
  for (const StreamId stream : {StreamId{2}, no_stream}) {
    const auto answer = world.arena().allocate(world.granules(1), stream);
    ASSERT_EQ(outcome(answer), "out of memory");
    EXPECT_EQ(answer.error().asked, world.granules(1));
    EXPECT_EQ(answer.error().available, 0U) << "all of it may still be in use";
    EXPECT_STREQ(answer.error().subject,
                 "new memory, moving free chunks, waiting for pending work");
    EXPECT_EQ(answer.error().tried, 11U);
  }
  EXPECT_EQ(outcome(world.arena().allocate(world.granules(2), 1)), "out of memory");
  expect_pattern(freed, world.granule, 77);
  EXPECT_EQ(world.arena().counters().moved_chunks, 0u);
  EXPECT_OK(world.arena().allocate(world.granules(1), 1));
}

TEST_F(ArenaMoves, RefusesBeyondTheLimitUntilAFree) {
  ArenaWorld& world = given({.limit_granules = 4});
  Block& block = world.given_block(world.granules(3));
  EXPECT_EQ(outcome(world.arena().allocate(world.granules(2), 1)), "out of memory");
  world.expect_intact(block);
  world.free(block);
  EXPECT_OK(world.arena().allocate(world.granules(4), 1));
}

// The store has two granules, the rest moves.
TEST_F(ArenaMoves, PartlyNewAndPartlyMoved) {
  ArenaWorld& world = given({.limit_granules = 10});
  const auto blocks = world.given_blocks(8, world.granule);
  for (std::size_t i = 0; i < 7; i += 2) world.free_for_anyone(*blocks[i]);
  world.given_block(world.granules(6));
  EXPECT_EQ(world.arena().mapped_bytes(), world.granules(10));
  EXPECT_EQ(world.arena().counters().moved_chunks, 4u);
}

// A free chunk of eight granules and eight small free chunks before a gap of two, with nothing
// behind: the large chunk fits nowhere.
TEST_F(ArenaMoves, ALargeFreeChunkIsReplacedBySmallOnes) {
  ArenaWorld& world = given({.reserve_granules = 21, .largest_chunk = 8 * usual_granule});
  Block& large = world.given_block(world.granules(8));
  ASSERT_EQ(world.arena().counters().mapped_chunks, 1u);
  world.given_block(world.granules(1));
  std::vector<Block*> small = world.given_blocks(8, world.granules(1));
  Block& gap = world.given_block(world.granules(2));
  const Block& last = world.given_block(world.granules(2));
  world.free_for_anyone(gap);
  ASSERT_EQ(world.arena().trim(0), world.granules(2));
  for (Block* block : small) world.free_for_anyone(*block);
  world.free_for_anyone(large);
  world.store.trim(world.here, 0);
  world.budget->set_limit(world.budget->committed_bytes());

  const Block& block = world.given_block(world.granules(10));
  EXPECT_EQ(block.end(), last.address());
  EXPECT_LE(world.budget->committed_bytes(), world.budget->limit());
}

TEST_F(ArenaMoves, TakesFreeChunksOfAnotherArena) {
  ArenaWorld& world = given({.limit_granules = 8});
  const auto other = world.make_arena();
  Block& block = *GIVEN_VALUE(other->allocate(world.granules(6), 1));
  EXPECT_EQ(outcome(world.arena().allocate(world.granules(6), 1)), "out of memory");
  other->free(block, world.order.freed_on(1));
  world.order.finish_all();
  EXPECT_OK(world.arena().allocate(world.granules(6), 1));
  EXPECT_EQ(other->mapped_bytes(), world.granules(2));
  other->check();
}

// Each request takes its chunks one by one; if both hold half of them, they must not both give up.
TEST_F(ArenaMoves, OfTwoRequestsForMoreThanHalfOneSucceeds) {
  ArenaWorld& world = given({.limit_granules = 20, .wait = Duration{60'000'000}});
  std::atomic<int> arrived{0};
  std::array<Block*, 2> had{};
  const std::uint64_t rounds = scaled(500);
  const auto meet = [&](int times) {
    ++arrived;
    while (arrived < 2 * times) std::this_thread::yield();
  };
  const auto ask = [&](std::size_t who) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      meet(static_cast<int>(3 * round + 1));
      const auto answer = world.arena().allocate(world.granules(12), no_stream);
      had[who] = answer.ok() ? *answer : nullptr;
      meet(static_cast<int>(3 * round + 2));
      if (who == 0) {
        EXPECT_NE(had[0] != nullptr, had[1] != nullptr) << "in round " << round;
        for (Block* block : had) {
          if (block != nullptr) world.arena().free(*block, {});
        }
        world.arena().trim(0);
        world.store.trim(world.here, 0);
      }
      meet(static_cast<int>(3 * round + 3));
    }
  };
  std::thread other{ask, 1};
  ask(0);
  other.join();
}

TEST_F(ArenaMoves, AnImpossibleRequestIsRefusedBeforeAnythingIsReleased) {
  ArenaWorld& world = given({.limit_granules = 8});
  const auto other = world.make_arena();
  other->free(*GIVEN_VALUE(other->allocate(world.granules(4), 1)), {});
  world.given_block(world.granules(2));
  EXPECT_EQ(outcome(world.arena().allocate(world.granules(7), 1)), "out of memory");
  EXPECT_EQ(other->mapped_bytes(), world.granules(4));
  EXPECT_EQ(world.store.counters(world.here).physical_free, 0u);
  EXPECT_OK(world.arena().allocate(world.granules(6), 1));
}

// At the end less is missing, but the memory free there is all that can move: the arena must build
// on the halves of chunks.
TEST_F(ArenaMoves, BuildsOnMemoryThatCannotMove) {
  ArenaWorld& world = given({.limit_granules = 6, .reserve_granules = 48});
  const Size half = world.granule / 2;
  world.given_block(half);
  Block& before = world.given_block(half);
  Block& hole = world.given_block(world.granules(2));
  Block& behind = world.given_block(half);
  world.given_block(half);
  Block& last = world.given_block(world.granules(2));
  ASSERT_EQ(world.arena().mapped_bytes(), world.granules(6));
  world.free_for_anyone(hole);
  ASSERT_EQ(world.arena().trim(0), world.granules(2));
  world.store.trim(world.here, 0);
  world.budget->set_limit(world.granules(4));
  const CUdeviceptr expected = before.address();
  for (Block* block : {&before, &behind, &last}) world.free_for_anyone(*block);
  EXPECT_EQ(world.given_block(world.granules(3)).address(), expected);
  EXPECT_EQ(world.arena().counters().moved_chunks, 2u);
}

}  // namespace
}  // namespace cuvmm::test
