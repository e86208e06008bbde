// SPDX-License-Identifier: Apache-2.0
// Allocating and freeing in an elastic pool, byte by byte.
#include <chrono>
#include <thread>

#include "pool_world.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

using ElasticPoolTest = PoolTest;

TEST_F(ElasticPoolTest, CapacityRoundsUpAndTakesNoMemory) {
  const auto pool = GIVEN_VALUE(ElasticPool::create(world->places, {.capacity = granule + 1}));
  EXPECT_EQ(pool->capacity(), 2 * granule);
  EXPECT_EQ(pool->stats().physical, 0u);
  EXPECT_EQ(pool->stats().largest_free, 2 * granule);
  EXPECT_EQ(pool->stats().fragmentation(), 0.0);
  EXPECT_EQ(outcome(ElasticPool::create(world->places, {.capacity = 0})), "invalid argument");
  EXPECT_EQ(outcome(ElasticPool::create(world->places, {.capacity = unlimited})),
            "invalid argument");
  EXPECT_EQ(
      outcome(ElasticPool::create(world->places, {.capacity = 1, .most_capacity = unlimited})),
      "invalid argument");
}

TEST_F(ElasticPoolTest, AGranuleIsReleasedWithItsLastByte) {
  const auto pool = world->elastic(4);
  ASSERT_OK(pool->allocate_at({10, 100}));
  ASSERT_OK(pool->allocate_at({110, granule}));  // reaches into the second granule
  EXPECT_EQ(pool->stats().mapped_granules, 2u);
  mark(*pool, {10, 100}, 1);
  ASSERT_OK(pool->deallocate({110, granule}));
  EXPECT_EQ(pool->stats().mapped_granules, 1u);
  expect_mark(*pool, {10, 100}, 1);
  ASSERT_OK(pool->deallocate({10, 99}));
  EXPECT_EQ(pool->stats().physical, granule);
  EXPECT_TRUE(pool->is_mapped({109, 1}));
  ASSERT_OK(pool->deallocate({109, 1}));
  EXPECT_EQ(pool->stats().physical, 0u);
  EXPECT_SOUND(*pool);
}

TEST_F(ElasticPoolTest, OverlapIsRefusedToTheByte) {
  const auto pool = world->elastic(4);
  ASSERT_OK(pool->allocate_at({granule, 100}));
  EXPECT_EQ(outcome(pool->allocate_at({granule + 99, 1})), "already mapped");
  EXPECT_EQ(outcome(pool->allocate_at({0, granule + 1})), "already mapped");
  EXPECT_EQ(outcome(pool->allocate_at({0, 4 * granule})), "already mapped");
  ASSERT_OK(pool->allocate_at({granule + 100, 1}));
  ASSERT_OK(pool->allocate_at({0, granule}));
  EXPECT_EQ(outcome(pool->deallocate({granule, 102})), "not mapped");
  EXPECT_EQ(outcome(pool->deallocate({3 * granule, 1})), "not mapped");
  EXPECT_EQ(pool->stats().allocated, granule + 101);
  ASSERT_OK(pool->deallocate({0, granule + 101}));  // several at once
  EXPECT_EQ(pool->stats().physical, 0u);
}

TEST_F(ElasticPoolTest, InvalidRangesAreRefusedWithTheCapacity) {
  const auto pool = world->elastic(4);
  for (const Stretch beyond : {Stretch{4 * granule, 1}, Stretch{3 * granule, granule + 1},
                               Stretch{unlimited, 2}, Stretch{granule, unlimited}}) {
    const auto refused = pool->allocate_at(beyond);
    ASSERT_EQ(outcome(refused), "invalid offset") << beyond.offset;
    EXPECT_EQ(refused.error().available, 4 * granule);
    EXPECT_EQ(outcome(pool->deallocate(beyond)), "invalid offset");
    EXPECT_FALSE(pool->is_mapped(beyond));
  }
  EXPECT_EQ(outcome(pool->allocate_at({0, 0})), "invalid argument");
  EXPECT_EQ(outcome(pool->deallocate({0, 0})), "invalid argument");
  EXPECT_FALSE(pool->is_mapped({0, 0}));
}

TEST_F(ElasticPoolTest, FindsTheSmallestPlaceThatFits) {
  const auto pool = world->elastic(8);
  ASSERT_OK(pool->allocate_at({4096, granule}));
  ASSERT_OK(pool->allocate_at({8192 + granule, granule}));
  EXPECT_EQ(GIVEN_VALUE(pool->allocate(4096)), 0u);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate(1000)), 4096 + granule);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate(1000)), 4096 + granule + 1024);
  const auto refused = pool->allocate(7 * granule);
  EXPECT_EQ(outcome(refused), "out of addresses");
  EXPECT_EQ(refused.error().available, pool->stats().largest_free);
}

TEST_F(ElasticPoolTest, FragmentationIsWhatTheLargestPieceLacks) {
  const auto pool = world->elastic(4);
  ASSERT_OK(pool->allocate_at({granule, granule}));
  const ElasticStats stats = pool->stats();
  EXPECT_EQ(stats.free, 3 * granule);
  EXPECT_EQ(stats.largest_free, 2 * granule);
  EXPECT_DOUBLE_EQ(stats.fragmentation(), 1.0 - 2.0 / 3.0);
  ASSERT_OK(pool->allocate_at({0, granule}));
  ASSERT_OK(pool->allocate_at({2 * granule, 2 * granule}));
  EXPECT_EQ(pool->stats().fragmentation(), 0.0) << "nothing is free";
}

TEST_F(ElasticPoolTest, TheLimitHoldsAndTheErrorHasTheRemainder) {
  const auto pool = world->elastic(8, {.physical_limit = 3 * granule});
  ASSERT_OK(pool->allocate_at({0, 2 * granule}));
  const auto refused = pool->allocate_at({4 * granule, 2 * granule});
  ASSERT_EQ(outcome(refused), "out of memory");
  EXPECT_EQ(refused.error().asked, 2 * granule);
  EXPECT_EQ(refused.error().available, granule);
  EXPECT_FALSE(pool->is_mapped({4 * granule, 1}));
  ASSERT_OK(pool->allocate_at({4 * granule, granule}));
}

TEST_F(ElasticPoolTest, GrowsInPlaceAndCannotShrink) {
  const auto pool = world->elastic(2, {.most_capacity = 4 * granule});
  const CUdeviceptr base = pool->base_address();
  EXPECT_EQ(outcome(pool->allocate_at({2 * granule, 1})), "invalid offset");
  ASSERT_OK(pool->grow(3 * granule));
  ASSERT_OK(pool->allocate_at({2 * granule, granule}));
  EXPECT_EQ(pool->base_address(), base);
  EXPECT_EQ(outcome(pool->grow(granule)), "invalid argument");
  EXPECT_EQ(outcome(pool->grow(5 * granule)), "out of addresses");
  EXPECT_EQ(outcome(pool->grow(unlimited)), "out of addresses");
  EXPECT_EQ(pool->capacity(), 3 * granule);
}

TEST_F(ElasticPoolTest, OneAccessCallForAContiguousRange) {
  FaultyDriver counting{driver()};
  PoolWorld counted{counting};
  const auto pool = counted.elastic(64);
  counting.forget_calls();
  ASSERT_OK(pool->allocate_at({0, 64 * granule}));
  EXPECT_EQ(counting.count_of("cuMemMap"), 64u);
  EXPECT_EQ(counting.count_of("cuMemSetAccess"), 1u);
}

TEST_F(ElasticPoolTest, CachedGranulesAreUsedAgainAndTrimmed) {
  FaultyDriver counting{driver()};
  PoolWorld counted{counting};
  const auto pool = counted.elastic(8);
  ASSERT_OK(pool->allocate_at({0, 4 * granule}));
  ASSERT_OK(pool->deallocate({0, 4 * granule}));
  counting.forget_calls();
  ASSERT_OK(pool->allocate_at({4 * granule, 4 * granule}));
  EXPECT_EQ(counting.count_of("cuMemCreate"), 0u);
  ASSERT_OK(pool->deallocate({4 * granule, 4 * granule}));
  EXPECT_EQ(pool->trim(), 4 * granule);
  EXPECT_EQ(pool->trim(), 0u);
}

TEST_F(ElasticPoolTest, UnmapsNothingThatAFencedStreamStillUses) {
  const auto pool = world->elastic(2);
  const Size at = GIVEN_VALUE(pool->allocate(granule));
  const GivenStream stream;
  {
    // Blocked until the host releases it, then written: a fault would be sticky.
    SlowWork running{kernels(), stream};
    GIVEN(driver().cuMemsetD8Async(pool->base_address() + at, 7, granule, stream));
    ASSERT_OK(pool->fence(stream));
    std::thread other{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      running.end();
    }};
    EXPECT_OK(pool->deallocate({at, granule}));
    EXPECT_CUDA(driver().cuStreamQuery(stream)) << "it was waited for";
    other.join();
  }
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(ElasticPoolTest, DestructionWaitsForFences) {
  const GivenStream stream;
  SlowWork running{kernels(), stream};
  auto pool = world->elastic(2);
  ASSERT_OK(pool->allocate_at({0, granule}));
  GIVEN(driver().cuMemsetD8Async(pool->base_address(), 7, granule, stream));
  ASSERT_OK(pool->fence(stream));
  std::thread other{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    running.end();
  }};
  pool.reset();
  EXPECT_CUDA(driver().cuStreamQuery(stream));
  other.join();
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}

TEST_F(ElasticPoolTest, ManyFencesAreForgottenOnceTheyAreDone) {
  const auto pool = world->elastic(2);
  const GivenStream stream;
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(pool->fence(stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  }
  ASSERT_OK(pool->wait_for_fences());
}

TEST_F(ElasticPoolTest, AStreamThatIsCapturedCannotBeFenced) {
  const auto pool = world->elastic(2);
  const GivenStream stream;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(outcome(pool->fence(stream)), "invalid argument");
  CUgraph graph = nullptr;
  EXPECT_CUDA(driver().cuStreamEndCapture(stream, &graph)) << "the capture is unharmed";
  EXPECT_CUDA(driver().cuGraphDestroy(graph));
}

// One request over both devices: kernels of both read and write across every seam.
TEST_F(ElasticPoolTest, KernelsOfEveryDeviceCrossTheSeams) {
  NEEDS_DEVICES(2);
  PoolWorld both{driver(), {.devices = {0, 1}, .placement = PoolPlacement::Stripe}};
  const auto pool = both.elastic(4);
  ASSERT_OK(pool->allocate_at({0, 4 * granule}));
  EXPECT_EQ(pool->stats().physical_at, (std::vector<Size>{2 * granule, 2 * granule}));
  const auto words = static_cast<std::uint32_t>(4 * granule / 4);
  ASSERT_CUDA(launch(kernels().fill, nullptr, std::uint64_t{pool->base_address()},
                     std::uint32_t{41}, words));
  ASSERT_CUDA(synchronize());
  {
    const PrimaryContext other{1};
    const Kernels there;
    ASSERT_CUDA(launch(there.add_one, nullptr, std::uint64_t{pool->base_address()}, words));
    ASSERT_CUDA(synchronize());
  }
  const auto bytes = read(pool->base_address(), 4 * granule);
  for (Size at = 0; at < bytes.size(); at += granule / 2) {
    EXPECT_EQ(static_cast<int>(bytes[at]), 42) << "at " << at;
  }
}

TEST_F(ElasticPoolTest, HostMemoryServesIfTheDeviceIsFull) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PoolWorld with_host{driver(), {.host = HostUse::Only}};
  const auto pool = with_host.elastic(2);
  ASSERT_OK(pool->allocate_at({0, 2 * granule}));
  mark(*pool, {0, 2 * granule}, 5);
  expect_mark(*pool, {0, 2 * granule}, 5);
  EXPECT_EQ(pool->stats().physical_at, (std::vector<Size>{2 * granule}));
  EXPECT_TRUE(with_host.places->location(0).is_host());
}

// "A call that fails changes nothing": the device is unchanged, for others too.
TEST_F(ElasticPoolTest, ARefusedCallKeepsNoDeviceMemory) {
  const auto pool = world->elastic(16);
  world->budgets[0]->set_limit(8 * granule);
  ASSERT_OK(pool->allocate_at({0, granule}));
  ASSERT_OK(pool->allocate_at({granule, 2 * granule}));
  ASSERT_OK(pool->deallocate({granule, 2 * granule}));
  const Size held = world->budgets[0]->committed_bytes();
  const Size kept = world->places->cached_bytes();
  ASSERT_EQ(kept, 2 * granule);
  const auto refused = pool->allocate(12 * granule);
  EXPECT_EQ(outcome(refused), "out of memory");
  EXPECT_EQ(refused.error().asked, 12 * granule);
  EXPECT_EQ(refused.error().available, 7 * granule);
  EXPECT_EQ(world->budgets[0]->committed_bytes(), held);
  EXPECT_EQ(world->places->cached_bytes(), kept);
  EXPECT_SOUND(*pool);
}

TEST_F(ElasticPoolTest, ACallThatFailsHalfWayKeepsNoDeviceMemory) {
  FaultyDriver faulty{driver()};
  PoolWorld failing{faulty};
  const auto pool = failing.elastic(16);
  for (const Call call : {Call::cuMemCreate, Call::cuMemMap, Call::cuMemSetAccess}) {
    faulty.fail_call(call, call == Call::cuMemSetAccess ? 1 : 5, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(pool->allocate(8 * granule).ok());
    EXPECT_EQ(faulty.faults(), 1u);
    faulty.stop_failing();
    EXPECT_EQ(failing.budgets[0]->committed_bytes(), 0u);
    EXPECT_SOUND(*pool);
  }
}

}  // namespace
}  // namespace cuvmm::test
