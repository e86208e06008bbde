// SPDX-License-Identifier: Apache-2.0
// Granules of addresses that share a chunk: live memory moves below its addresses.
#include <random>

#include "alloc_arena_world.hpp"

namespace cuvmm::test {
namespace {

class ArenaSharing : public ArenaTest {
 protected:
  // Fills the memory with quarters of granules, and frees the inner two of every second granule and
  // the outer two of the others. No free range is as large as a granule.
  std::vector<Block*> given_quarters(Size granules, const ArenaWorld::Given& how = {}) {
    ArenaWorld::Given all = how;
    all.limit_granules = granules;
    all.compacts = true;
    ArenaWorld& its = given(all);
    return free_half(its.given_blocks(granules * 4, its.granule / 4));
  }
  std::vector<Block*> free_half(const std::vector<Block*>& quarters) {
    std::vector<Block*> live;
    for (std::size_t i = 0; i < quarters.size(); ++i) {
      if (!is_freed_quarter(i)) {
        live.push_back(quarters[i]);
      } else {
        world().free_for_anyone(*quarters[i]);
      }
    }
    return live;
  }
  // Enough is free for a request of `lacking` quarters, but only four can be gained. The last two
  // blocks are in the way.
  static constexpr Size lacking = 6;
  std::vector<Block*> given_shortfall() {
    std::vector<Block*> live = given_quarters(4);
    for (int i = 0; i < 2; ++i) live.push_back(&world().given_block(world().granule / 4));
    return live;
  }
  bool ask(Size quarters) {
    return world().arena().allocate(quarters * world().granule / 4, 1).ok();
  }
  void expect_most_of_a_random_half(Size largest_chunk, Size percent);
  void expect_intact(const std::vector<Block*>& blocks) {
    for (const Block* block : blocks) world().expect_intact(*block);
  }
};

TEST_F(ArenaSharing, ComplementaryGranulesShareAChunk) {
  const auto live = given_quarters(8);
  Block& large = world().given_block(world().granules(4));
  expect_intact(live);
  world().expect_intact(large);
  world().check();
  EXPECT_EQ(world().arena().mapped_bytes(), world().granules(8));
  EXPECT_EQ(world().arena().counters().compacted_granules, 4);
}

TEST_F(ArenaSharing, StopsWhenTheRequestFits) {
  const auto live = given_quarters(8);
  world().given_block(world().granules(1));
  EXPECT_EQ(world().arena().counters().compacted_granules, 1);
  expect_intact(live);
}

TEST_F(ArenaSharing, MovesNothingThatDoesNotSuffice) {
  const auto live = given_quarters(8);
  const auto refused = world().arena().allocate(world().granules(4) + 1, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_EQ(world().arena().counters().compacted_granules, 0);
  expect_intact(live);
}

TEST_F(ArenaSharing, MovesNothingIfItMayNot) {
  const auto live = given_quarters(8);
  world().compactor.allow(false);
  EXPECT_FALSE(world().arena().allocate(world().granules(1), 1).ok());
  EXPECT_EQ(world().arena().counters().compacted_granules, 0);
}

TEST_F(ArenaSharing, PinnedBlocksStay) {
  const auto live = given_quarters(4);
  world().arena().pin(*live[0], pin::sync_memops);
  EXPECT_FALSE(world().arena().allocate(world().granules(2), 1).ok());
  world().given_block(world().granules(1));
  EXPECT_EQ(world().arena().counters().compacted_granules, 1);
  expect_intact(live);
}

TEST_F(ArenaSharing, PendingMemoryIsNotFree) {
  ArenaWorld& its = given({.limit_granules = 4, .wait = Duration{0}, .compacts = true});
  its.order.let_waits_succeed(false);
  const auto quarters = its.given_blocks(16, its.granule / 4);
  for (const std::size_t freed : {1, 2, 4, 7, 9, 10, 12, 15}) its.free(*quarters[freed]);
  EXPECT_FALSE(its.arena().allocate(its.granules(2), 2).ok());
  EXPECT_EQ(its.arena().counters().compacted_granules, 0);
  its.order.finish_all();
  its.given_block(its.granules(2), 2);
  EXPECT_EQ(its.arena().counters().compacted_granules, 2);
}

TEST_F(ArenaSharing, IsNotEstimatedAgainForTheSameRefusal) {
  const auto live = given_shortfall();
  EXPECT_FALSE(ask(lacking));
  const std::uint64_t estimates = world().arena().counters().estimates;
  EXPECT_GT(estimates, 0);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(ask(lacking));
  EXPECT_EQ(world().arena().counters().estimates, estimates);
  EXPECT_TRUE(ask(4)) << "that says nothing of smaller requests";
}

// An estimate looks at every block, and a program may allocate very many.
TEST_F(ArenaSharing, IsNotEstimatedForBlocksThatGoFarWhileNothingIsFree) {
  ArenaWorld& its = given({.limit_granules = 4, .spill_granules = 4, .compacts = true});
  its.given_blocks(24, its.granule / 4);
  EXPECT_EQ(its.arena().counters().estimates, 0);
}

TEST_F(ArenaSharing, IsEstimatedAgainOnceMemoryIsFreed) {
  auto live = given_shortfall();
  EXPECT_FALSE(ask(lacking));
  for (int i = 0; i < 2; ++i) {
    world().free_for_anyone(*live.back());
    live.pop_back();
  }
  EXPECT_TRUE(ask(lacking));
  expect_intact(live);
}

TEST_F(ArenaSharing, IsEstimatedAgainOnceWorkHasEnded) {
  ArenaWorld& its = given({.limit_granules = 4, .wait = Duration{0}, .compacts = true});
  its.order.let_waits_succeed(false);
  its.order.keep_to_streams();
  const auto quarters = its.given_blocks(16, its.granule / 4);
  for (const std::size_t freed : {1, 2, 4, 7, 9, 10, 12, 15}) its.free(*quarters[freed]);
  EXPECT_FALSE(its.arena().allocate(its.granules(2), 2).ok());
  its.order.finish_all();
  its.given_block(its.granules(2), 2);
}

TEST_F(ArenaSharing, IsEstimatedAgainOnceABlockIsUnpinned) {
  const auto live = given_quarters(4);
  world().arena().pin(*live[0], pin::sync_memops);
  EXPECT_FALSE(ask(8));
  live[0]->drop_pin(pin::sync_memops);
  EXPECT_TRUE(ask(8));
  expect_intact(live);
}

TEST_F(ArenaSharing, IsEstimatedAgainAfterAChangeOfAccess) {
  const auto live = given_shortfall();
  EXPECT_FALSE(ask(lacking));
  const std::uint64_t estimates = world().arena().counters().estimates;
  ASSERT_OK(world().arena().set_access(world().arena().access()));
  EXPECT_FALSE(ask(lacking));
  EXPECT_GT(world().arena().counters().estimates, estimates);
}

TEST_F(ArenaSharing, SharedMemoryIsAllocatedAndFreedAsAnyOther) {
  auto live = given_quarters(8);
  Block& large = world().given_block(world().granules(4));
  const CUdeviceptr address = live[3]->address();
  world().free(*live[3]);
  Block& again = world().given_block(world().granule / 4);
  EXPECT_EQ(again.address(), address);
  live[3] = &again;
  expect_intact(live);
  world().check();
  world().free_for_anyone(large);
  expect_intact(live);
}

TEST_F(ArenaSharing, EndsWhereAGranuleHasNothingLive) {
  auto live = given_quarters(4);
  Block& large = world().given_block(world().granules(2));
  world().free_for_anyone(large);
  world().arena().trim(0);
  EXPECT_EQ(world().arena().mapped_bytes(), world().granules(2));
  // The outer quarters go. Then the others are alone with their chunks.
  for (const std::size_t outer : {0, 1, 4, 5}) world().free_for_anyone(*live[outer]);
  world().arena().trim(0);
  world().check();
  EXPECT_EQ(world().arena().mapped_bytes(), world().granules(2));
  EXPECT_EQ(world().arena().counters().free, world().granules(1));
  for (const std::size_t inner : {2, 3, 6, 7}) world().expect_intact(*live[inner]);
  for (const std::size_t inner : {2, 3, 6, 7}) world().free_for_anyone(*live[inner]);
  world().arena().trim(0);
  EXPECT_EQ(world().arena().mapped_bytes(), 0);
}

TEST_F(ArenaSharing, EverythingCanBeReleasedAtOnce) {
  const auto live = given_quarters(8);
  world().free_for_anyone(world().given_block(world().granules(4)));
  for (Block* const block : live) world().free(*block);
  world().order.finish_all();
  world().arena().trim(0);
  EXPECT_EQ(world().arena().mapped_bytes(), 0);
  EXPECT_EQ(world().arena().counters().free, 0);
}

TEST_F(ArenaSharing, FreedMemoryOfAllServesTheNextRequest) {
  const auto live = given_quarters(8);
  world().free_for_anyone(world().given_block(world().granules(4)));
  for (Block* const block : live) world().free_for_anyone(*block);
  Block& all = world().given_block(world().granules(8));
  world().expect_intact(all);
}

TEST_F(ArenaSharing, LargeChunksAreBrokenUpWithGainedOnes) {
  ArenaWorld& its = given({.limit_granules = 16,
                           .largest_chunk = 4 * usual_granule,
                           .share_of_room = 4,
                           .compacts = true});
  auto quarters = its.given_blocks(64, its.granule / 4);
  const auto live = free_half(quarters);
  Block& large = its.given_block(its.granules(8));
  its.expect_intact(large);
  expect_intact(live);
}

// No chunk of one granule is free, so they are made from the free chunks that the request would
// use.
TEST_F(ArenaSharing, LargeChunksAreBrokenUpWithTheRequestsOwnMemory) {
  ArenaWorld& its = given({.limit_granules = 16,
                           .largest_chunk = 4 * usual_granule,
                           .share_of_room = 1,
                           .compacts = true});
  Block& large = its.given_block(its.granules(8));
  auto quarters = its.given_blocks(32, its.granule / 4);
  its.free_for_anyone(large);
  std::vector<Block*> in_large_chunk{quarters.begin(), quarters.begin() + 16};
  std::vector<Block*> live = free_half(in_large_chunk);
  live.insert(live.end(), quarters.begin() + 16, quarters.end());
  Block& larger = its.given_block(its.granules(10));
  its.expect_intact(larger);
  expect_intact(live);
  its.check();
}

TEST_F(ArenaSharing, ManyAddressesShareOneChunk) {
  ArenaWorld& its = given({.limit_granules = 8, .compacts = true});
  const auto eighths = its.given_blocks(64, its.granule / 8);
  std::vector<Block*> live;
  for (std::size_t i = 0; i < eighths.size(); ++i) {
    if (i % 8 == i / 8) {
      live.push_back(eighths[i]);
    } else {
      its.free_for_anyone(*eighths[i]);
    }
  }
  Block& large = its.given_block(its.granules(7));
  expect_intact(live);
  its.expect_intact(large);
  its.check();
  for (std::size_t i = 0; i < 7; ++i) its.free_for_anyone(*live[i]);
  its.free_for_anyone(large);
  its.arena().trim(0);
  its.expect_intact(*live[7]);
  EXPECT_EQ(its.arena().mapped_bytes(), its.granules(1));
  EXPECT_EQ(its.arena().counters().free, its.granule / 8 * 7);
}

TEST_F(ArenaSharing, NewAccessHoldsAtAllAddresses) {
  NEEDS_DEVICES(2);
  const auto live = given_quarters(4);
  world().given_block(world().granules(2));
  ASSERT_OK(world().arena().set_access(AccessSet::of(0).with(1)));
  world().check();
  expect_intact(live);
}

// Fills the memory with quarters of granules, frees a random half of them, and asks for the sum.
void ArenaSharing::expect_most_of_a_random_half(Size largest_chunk, Size percent) {
  std::mt19937_64 random{7};
  ArenaWorld& its = given({.limit_granules = 256,
                           .reserve_granules = 1024,
                           .largest_chunk = largest_chunk,
                           .share_of_room = 4,
                           .compacts = true});
  std::vector<Block*> live;
  Size freed = 0;
  for (std::size_t i = 0; i < 256 * 4; ++i) live.push_back(&its.given_block(its.granule / 4));
  std::shuffle(live.begin(), live.end(), random);
  for (std::size_t i = 0; i < 256 * 2; ++i) {
    freed += live.back()->granted();
    its.free_for_anyone(*live.back());
    live.pop_back();
  }
  Size most = freed / its.granule;
  while (most != 0 && !its.arena().allocate(its.granules(most), 1).ok()) --most;
  EXPECT_GE(its.granules(most) * 100, freed * percent) << most;
  expect_intact(live);
  its.check();
}

TEST_F(ArenaSharing, GranulesOfRandomBlocksShare) {
  expect_most_of_a_random_half(usual_granule, 85);
}

// Each alone gains nothing when it is broken up.
TEST_F(ArenaSharing, GranulesOfLargerChunksShare) {
  expect_most_of_a_random_half(2 * usual_granule, 75);
}

TEST_F(ArenaSharing, GranulesOfLargestChunksShare) {
  expect_most_of_a_random_half(16 * usual_granule, 85);
}

}  // namespace
}  // namespace cuvmm::test
