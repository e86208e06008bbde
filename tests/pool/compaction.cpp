// SPDX-License-Identifier: Apache-2.0
// Fewer chunks for the same bytes: sharing, splitting, moving.
#include <atomic>
#include <chrono>
#include <thread>

#include "driver/current_context.hpp"
#include "pool_world.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

class PoolCompactionTest : public PoolTest {
 protected:
  void SetUp() override {
    PoolTest::SetUp();
    pool = world->elastic(16);
  }
  void TearDown() override {
    pool.reset();
    PoolTest::TearDown();
  }
  std::unique_ptr<ElasticPool> pool;

  void given(Stretch stretch, std::uint64_t seed, AllocationTraits traits = {}) {
    ASSERT_OK(pool->allocate_at(stretch, traits));
    mark(*pool, stretch, seed);
  }
};

// Lent memory is mapped by others.
TEST_F(PoolCompactionTest, LentMemoryStaysInPlaceAndUnshared) {
  pool.reset();
  world->places = world->make_places({.exportable = Export::Yes});
  pool = world->elastic(8);
  given({0, granule}, 10, {.movable = Movable::Yes});
  given({2 * granule + granule / 2, granule / 4}, 20, {.movable = Movable::Yes});
  std::vector<ChunkRef> lent;
  ASSERT_OK(pool->lend({0, granule}, [&](const ChunkRef& chunk) -> Result<void> {
    TRY(chunk.export_fd());
    lent.push_back(chunk);
    return {};
  }));
  ASSERT_EQ(lent.size(), 1u);
  ASSERT_OK(pool->deallocate({granule / 2, granule / 2}));  // room for other pieces
  const PoolCompaction done = GIVEN_VALUE(pool->compact());
  EXPECT_TRUE(done.moves.empty());
  EXPECT_EQ(done.physical_released, 0u);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
}

TEST_F(PoolCompactionTest, GranulesWithDisjointBytesShareOneChunk) {
  const Stretch first{0, granule / 2};
  const Stretch second{granule + granule / 2, granule / 2};
  given(first, 10);
  given(second, 20);
  const PoolCompaction done = GIVEN_VALUE(pool->compact());
  EXPECT_EQ(done.physical_released, granule);
  EXPECT_EQ(done.cached_released, granule);
  EXPECT_TRUE(done.moves.empty());
  EXPECT_EQ(pool->stats().physical, granule);
  EXPECT_EQ(pool->stats().mapped_granules, 2u);
  expect_mark(*pool, first, 10);
  expect_mark(*pool, second, 20);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, GranulesWithOverlappingBytesStaySeparate) {
  given({0, granule / 2 + 1}, 10);
  given({granule + granule / 2, granule / 2}, 20);
  EXPECT_EQ(GIVEN_VALUE(pool->compact()).physical_released, 0u);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
}

TEST_F(PoolCompactionTest, BytesUsedByASharingGranuleAreWithheldUntilItIsFreed) {
  const Stretch first{0, granule / 2};
  const Stretch second{granule + granule / 2, granule / 2};
  given(first, 10);
  given(second, 20);
  ASSERT_OK(pool->compact());
  const Stretch third{granule / 2, 100};  // where the second lies in the chunk
  EXPECT_EQ(outcome(pool->allocate_at(third)), "already mapped");
  EXPECT_EQ(outcome(pool->allocate_at({granule, 1})), "already mapped");
  EXPECT_EQ(pool->stats().free, 15 * granule);
  EXPECT_EQ(pool->stats().largest_free, 14 * granule);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate(100)), 2 * granule) << "where there is no such memory";
  EXPECT_SOUND(*pool);
  ASSERT_OK(pool->deallocate(second));
  given(third, 30);
  expect_mark(*pool, first, 10);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, TheNextCompactionSeparatesGranulesOnDemand) {
  const Stretch first{0, granule / 2};
  const Stretch second{granule + granule / 2, granule / 2};
  given(first, 10);
  given(second, 20);
  ASSERT_OK(pool->compact());
  const Stretch third{granule / 2, 100};
  EXPECT_EQ(outcome(pool->allocate_at(third)), "already mapped");
  EXPECT_EQ(GIVEN_VALUE(pool->compact()).physical_released, 0u);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
  given(third, 30);
  expect_mark(*pool, first, 10);
  expect_mark(*pool, second, 20);
  expect_mark(*pool, third, 30);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, GranulesStaySharedWithoutMemoryToSeparateThem) {
  world->budgets[0]->set_limit(2 * granule);
  given({0, 1000}, 10);
  given({granule + 2000, 1000}, 20);
  ASSERT_OK(pool->compact());
  const ChunkRef other = GIVEN_VALUE(
      GIVEN_VALUE(world->store_of(Location::device(0)))->take({granule, Location::device(0)}));
  EXPECT_EQ(outcome(pool->allocate_at({2000, 1})), "already mapped");
  ASSERT_OK(pool->compact());
  EXPECT_EQ(outcome(pool->allocate_at({2000, 1})), "already mapped");
  EXPECT_EQ(pool->stats().physical, granule);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, AnAllocationWithoutConflictNeedsNoSplit) {
  given({0, 1000}, 10);
  given({granule + granule / 2, 1000}, 20);
  ASSERT_OK(pool->compact());
  given({granule / 4, 1000}, 30);
  EXPECT_EQ(pool->stats().physical, granule);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, AnAllocationOverBothSharersNeedsThemSeparated) {
  given({0, 1000}, 10);
  given({granule + 2000, 1000}, 20);
  ASSERT_OK(pool->compact());
  const Stretch between{1000, granule + 1000};  // the rest of the one, the beginning of the other
  EXPECT_EQ(outcome(pool->allocate_at(between)), "already mapped");
  ASSERT_OK(pool->compact());
  given(between, 30);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
  expect_mark(*pool, {0, 1000}, 10);
  expect_mark(*pool, {granule + 2000, 1000}, 20);
  expect_mark(*pool, between, 30);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolCompactionTest, NoMoreThanSixteenShareAChunk) {
  pool = world->elastic(20);
  for (Size at = 0; at < 20; ++at) given({at * granule + at * 4096, 4096}, 10 * at);
  EXPECT_EQ(GIVEN_VALUE(pool->compact()).physical_released, 18 * granule);
  for (Size at = 0; at < 20; ++at) expect_mark(*pool, {at * granule + at * 4096, 4096}, 10 * at);
  EXPECT_SOUND(*pool);
}

// The driver unmaps even under running work, so an allocation must never unmap.
TEST_F(PoolCompactionTest, AnAllocationUnmapsNothing) {
  if (!simulated()) GTEST_SKIP() << "only the simulated driver counts its calls";
  given({0, granule / 4}, 10);
  given({granule + granule / 2, 4096}, 20);
  ASSERT_OK(pool->compact());
  const GivenStream stream;
  SlowWork running{kernels(), stream};
  GIVEN(driver().cuMemsetD8Async(pool->base_address(), 7, granule / 4, stream));
  ASSERT_OK(pool->fence(stream));
  const std::uint64_t before = sim()->calls("cuMemUnmap");
  for (Size at = 0; at < 2 * granule; at += granule / 8) (void)pool->allocate_at({at, granule / 8});
  ASSERT_OK(pool->allocate(granule / 8));
  EXPECT_EQ(sim()->calls("cuMemUnmap"), before);
  running.end();
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
  EXPECT_EQ(read(pool->base_address(), 1)[0], std::byte{7});
  EXPECT_SOUND(*pool);
}

// Bytes written by work that runs or is submitted during the allocation must survive it. With a
// slow unmap (VMM_SIM_DELAY=cuMemUnmap=300us), an allocation that remaps live memory loses some in
// every round.
TEST_F(PoolCompactionTest, AnAllocationChangesNothingUnderRunningWork) {
  const Stretch busy{0, granule / 4};
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    given(busy, 10);
    given({granule + granule / 2, 4096}, 20);
    ASSERT_OK(pool->compact());
    ASSERT_EQ(pool->stats().physical, granule);
    const auto value = static_cast<unsigned char>(round + 1);
    std::atomic<bool> begun{false};
    std::atomic<bool> enough{false};
    const CUcontext context = current_context(driver());
    std::thread other{[&] {
      EXPECT_CUDA(driver().cuCtxSetCurrent(context));
      const GivenStream stream;
      constexpr Size step = 1024;
      for (Size at = 0; at < busy.size; at += step) {
        EXPECT_CUDA(driver().cuMemsetD8Async(pool->base_address() + at, value, step, stream));
        EXPECT_OK(pool->fence(stream));
        begun = true;
      }
      EXPECT_CUDA(driver().cuStreamSynchronize(stream));
      enough = true;
    }};
    while (!begun) std::this_thread::yield();
    EXPECT_OK(pool->allocate(4096));
    while (!enough) {
      (void)pool->allocate_at({granule / 2, 4096});
      std::this_thread::yield();
    }
    other.join();
    for (const std::byte byte : read(pool->base_address(), busy.size)) {
      ASSERT_EQ(byte, std::byte{value}) << "written by work that is done, and gone";
    }
    pool = world->elastic(16);
  }
}

TEST_F(PoolCompactionTest, SharersMayBeFreedInAnyOrder) {
  for (Size at = 0; at < 4; ++at) given({at * granule + at * 4096, 4096}, 10 * at);
  EXPECT_EQ(GIVEN_VALUE(pool->compact()).physical_released, 3 * granule);
  for (const Size at : {0, 2, 1}) {
    ASSERT_OK(pool->deallocate({at * granule + at * 4096, 4096}));
    EXPECT_EQ(pool->stats().physical, granule);
    EXPECT_SOUND(*pool);
  }
  expect_mark(*pool, {3 * granule + 3 * 4096, 4096}, 30);
  ASSERT_OK(pool->deallocate({3 * granule + 3 * 4096, 4096}));
  EXPECT_EQ(pool->stats().physical, 0u);
}

TEST_F(PoolCompactionTest, MovesOnlyMovableAllocations) {
  const AllocationTraits movable{.movable = Movable::Yes};
  given({0, granule / 4}, 10);
  given({2 * granule, granule / 4}, 20, movable);
  given({4 * granule, granule / 4}, 30, movable);
  const PoolCompaction done = GIVEN_VALUE(pool->compact());
  ASSERT_EQ(done.moves.size(), 2u);
  expect_mark(*pool, {0, granule / 4}, 10);
  for (const Move& move : done.moves) {
    EXPECT_EQ(move.size, granule / 4);
    EXPECT_FALSE(pool->is_mapped({move.from, move.size}));
    EXPECT_TRUE(pool->is_mapped({move.to, move.size}));
    EXPECT_LT(move.to, granule);
    expect_mark(*pool, {move.to, move.size}, move.from == 2 * granule ? 20 : 30);
  }
  EXPECT_EQ(pool->stats().physical, granule);
  EXPECT_SOUND(*pool);
  // Moved allocations are still movable, and are freed at their new place.
  for (const Move& move : done.moves) ASSERT_OK(pool->deallocate({move.to, move.size}));
}

TEST_F(PoolCompactionTest, AGranuleWithAFixedAllocationIsNotEmptied) {
  const AllocationTraits movable{.movable = Movable::Yes};
  given({0, granule - 4096}, 10);
  given({2 * granule, 4096}, 20, movable);
  given({2 * granule + 8192, 4096}, 30);
  const PoolCompaction done = GIVEN_VALUE(pool->compact());
  EXPECT_TRUE(done.moves.empty());
  expect_mark(*pool, {2 * granule, 4096}, 20);
}

TEST_F(PoolCompactionTest, MovesAcrossSeamsOfSeveralGranules) {
  const AllocationTraits movable{.movable = Movable::Yes};
  given({0, granule / 2}, 10);                      // leaves half a granule,
  given({granule + granule / 2, granule / 2}, 20);  // and half of the next, side by side
  const Stretch large{4 * granule, granule - 4096};
  given(large, 30, movable);
  const PoolCompaction done = GIVEN_VALUE(pool->compact());
  ASSERT_EQ(done.moves.size(), 1u);
  EXPECT_EQ(done.moves[0].to, granule / 2);
  expect_mark(*pool, {done.moves[0].to, large.size}, 30);
  EXPECT_EQ(pool->stats().physical, 2 * granule);
}

TEST_F(PoolCompactionTest, WaitsForFences) {
  const AllocationTraits movable{.movable = Movable::Yes};
  given({0, 4096}, 10);
  given({2 * granule, 4096}, 20, movable);
  const GivenStream stream;
  {
    SlowWork running{kernels(), stream};
    GIVEN(driver().cuMemsetD8Async(pool->base_address() + 2 * granule, 7, 4096, stream));
    ASSERT_OK(pool->fence(stream));
    std::jthread other{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      running.end();
    }};
    const PoolCompaction done = GIVEN_VALUE(pool->compact());
    other.join();
    ASSERT_EQ(done.moves.size(), 1u);
    EXPECT_EQ(read(pool->base_address() + done.moves[0].to, 1)[0], std::byte{7});
  }
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(PoolCompactionTest, ChunksOfDifferentDevicesAreNotShared) {
  NEEDS_DEVICES(2);
  PoolWorld both{driver(), {.devices = {0, 1}, .placement = PoolPlacement::Stripe}};
  pool = both.elastic(4);
  given({0, 4096}, 10);
  given({granule + 8192, 4096}, 20);
  given({2 * granule + 16384, 4096}, 30);
  ASSERT_OK(pool->compact());
  EXPECT_EQ(pool->stats().physical_at, (std::vector<Size>{granule, granule}));
  expect_mark(*pool, {2 * granule + 16384, 4096}, 30);
  pool.reset();  // before its places end
}

}  // namespace
}  // namespace cuvmm::test
