// SPDX-License-Identifier: Apache-2.0
// Pools used by many threads at once.
#include <random>
#include <thread>

#include "pool_world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

using PoolThreads = VmmTest;
constexpr int thread_count = 4;

template <class Work>
void on_threads(Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PoolThreads, AnElasticPoolServesManyThreads) {
  PoolWorld world{driver()};
  const auto pool = world.elastic(64);
  on_threads([&](int index) {
    std::mt19937_64 random{static_cast<std::uint64_t>(index)};
    std::vector<Stretch> mine;
    for (std::uint64_t i = 0; i < scaled(3000); ++i) {
      if (mine.size() < 8 && random() % 2 == 0) {
        const Size size = 1 + random() % (2 * world.granule());
        const auto at = pool->allocate(size);
        if (at.ok()) mine.push_back({*at, size});
      } else if (!mine.empty()) {
        EXPECT_TRUE(pool->is_mapped(mine.back()));
        EXPECT_OK(pool->deallocate(mine.back()));
        mine.pop_back();
      }
      if (i % 256 == 0) {
        EXPECT_OK(pool->compact());
      }
      if (i % 64 == 0) {
        EXPECT_GE(pool->stats().capacity, pool->stats().allocated);
      }
    }
    for (const Stretch& stretch : mine) EXPECT_OK(pool->deallocate(stretch));
  });
  EXPECT_EQ(pool->stats().physical, 0u);
  EXPECT_SOUND(*pool);
}

TEST_F(PoolThreads, ASharedPoolMovesMemoryBetweenThreads) {
  PoolWorld world{driver()};
  const Size granule = world.granule();
  const auto pool = GIVEN_VALUE(SharedPool::create(world.places, 6 * granule));
  std::atomic<std::uint64_t> told{0};
  on_threads([&](int index) {
    const std::string name = "model " + std::to_string(index);
    const ModelSettings settings{.capacity = 8 * granule,
                                 .priority = index % 2,
                                 .reclaim = [&, name](Size) { (void)pool->deactivate(name); },
                                 .lost = [&](Stretch) { ++told; }};
    EXPECT_OK(pool->register_model(name, settings));
    std::mt19937_64 random{static_cast<std::uint64_t>(index)};
    for (std::uint64_t i = 0; i < scaled(1000); ++i) {
      switch (random() % 5) {
        case 0:
          EXPECT_OK(pool->deactivate(name));
          break;
        case 1:
          (void)pool->activate(name);
          break;
        case 2:
          EXPECT_OK(pool->model_stats(name));
          break;
        case 3:
          EXPECT_OK(pool->unregister_model(name));
          EXPECT_OK(pool->register_model(name, settings));
          break;
        default:
          (void)pool->allocate(name, 1 + random() % (3 * granule));
      }
      EXPECT_LE(pool->stats().physical, 6 * granule);
    }
    EXPECT_OK(pool->unregister_model(name));
  });
  EXPECT_EQ(pool->stats().physical, 0u);
  EXPECT_SOUND(*pool);
}

}  // namespace
}  // namespace cuvmm::test
