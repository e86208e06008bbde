// SPDX-License-Identifier: Apache-2.0
// Models under one limit: which model gets memory, from which others, and what happens to contents.
#include <thread>

#include "pool_world.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

class SharedPoolTest : public PoolTest {
 protected:
  void SetUp() override {
    PoolTest::SetUp();
    pool = GIVEN_VALUE(SharedPool::create(world->places, 4 * granule));
  }
  void TearDown() override {
    pool.reset();
    PoolTest::TearDown();
  }
  std::unique_ptr<SharedPool> pool;
  const AllocationTraits evictable{.evictable = Evictable::Yes};

  CUdeviceptr given(const char* id, ModelSettings settings = {}) {
    if (settings.capacity == 0) settings.capacity = 8 * granule;
    return GIVEN_VALUE(pool->register_model(id, std::move(settings)));
  }
  Size physical_of(const char* id) { return GIVEN_VALUE(pool->model_stats(id)).memory.physical; }
  // The pool's usage, the sum over the models, and the driver's count for this process agree.
  void expect_sum(std::initializer_list<const char*> ids) {
    Size sum = 0;
    for (const char* id : ids) sum += physical_of(id);
    const SharedStats stats = pool->stats();
    EXPECT_EQ(stats.physical, sum);
    EXPECT_LE(stats.physical, stats.physical_limit);
    EXPECT_SOUND(*pool);
    if (!simulated()) return;
    cuvmm_sim_counters counters{};
    ASSERT_EQ(sim()->read_counters(0, &counters), 0);
    EXPECT_EQ(counters.chunks * granule, stats.physical + stats.cached);
  }
};

TEST_F(SharedPoolTest, NamesAreUniqueAndKnown) {
  given("a");
  EXPECT_EQ(outcome(pool->register_model("a", {.capacity = granule})), "already exists");
  EXPECT_EQ(outcome(pool->register_model("", {.capacity = granule})), "invalid argument");
  EXPECT_EQ(outcome(pool->allocate("b", 1)), "not found");
  EXPECT_EQ(outcome(pool->activate("b")), "not found");
  ASSERT_OK(pool->unregister_model("a"));
  EXPECT_EQ(outcome(pool->unregister_model("a")), "not found");
  EXPECT_EQ(outcome(pool->model_stats("a")), "not found");
  EXPECT_EQ(pool->stats().models, 0u);
}

TEST_F(SharedPoolTest, EveryModelHasItsOwnAddresses) {
  const CUdeviceptr a = given("a");
  const CUdeviceptr b = given("b");
  EXPECT_TRUE(a + 8 * granule <= b || b + 8 * granule <= a);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate("a", granule)), 0u);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate("b", granule)), 0u);
  EXPECT_EQ(GIVEN_VALUE(pool->allocate("a", granule)), granule);
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, TheLimitHoldsIfNoModelGivesMemoryBack) {
  given("a");
  given("b");
  ASSERT_OK(pool->allocate("a", 3 * granule));
  const auto refused = pool->allocate("b", 2 * granule);
  ASSERT_EQ(outcome(refused), "out of memory");
  EXPECT_EQ(refused.error().asked, 2 * granule);
  EXPECT_EQ(refused.error().available, granule);
  ASSERT_OK(pool->allocate("b", granule));
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, AMinimumIsAlwaysAvailable) {
  given("a", {.minimum = 2 * granule});
  given("b");
  EXPECT_EQ(outcome(pool->allocate("b", 3 * granule)), "out of memory");
  ASSERT_OK(pool->allocate("b", 2 * granule));
  ASSERT_OK(pool->allocate("a", 2 * granule));
  EXPECT_EQ(outcome(pool->allocate("a", 1 * granule)), "out of memory");
  EXPECT_EQ(outcome(pool->register_model("c", {.capacity = granule, .minimum = granule})),
            "out of memory");
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, AMaximumIsNeverExceeded) {
  given("a", {.maximum = granule});
  ASSERT_OK(pool->allocate("a", granule));
  const auto refused = pool->allocate("a", 1);
  EXPECT_EQ(outcome(refused), "out of memory");
  EXPECT_EQ(refused.error().available, 0u);
}

TEST_F(SharedPoolTest, ModelsAreAskedByPriorityAndThenByUse) {
  std::vector<std::string> asked;
  const auto model = [&](const char* id, int priority) {
    given(id, {.priority = priority, .reclaim = [this, &asked, id](Size) {
                 asked.emplace_back(id);
                 const Size all = physical_of(id);
                 if (all != 0) {
                   EXPECT_OK(pool->deallocate(id, {0, all}));
                 }
               }});
    ASSERT_OK(pool->allocate(id, granule));
  };
  model("high", 2);
  model("early", 1);
  model("late", 1);
  model("low", 0);
  given("asks", {.priority = 1});
  ASSERT_OK(pool->allocate("asks", granule));
  EXPECT_EQ(asked, (std::vector<std::string>{"low"}));
  ASSERT_OK(pool->allocate("asks", granule));
  EXPECT_EQ(asked, (std::vector<std::string>{"low", "low", "early"}));
  ASSERT_OK(pool->allocate("asks", granule));
  EXPECT_EQ(asked.back(), "late");
  EXPECT_EQ(outcome(pool->allocate("asks", granule)), "out of memory")
      << "a model of higher priority is left alone";
  EXPECT_EQ(physical_of("high"), granule);
}

TEST_F(SharedPoolTest, EvictableMemoryIsTakenAndItsModelTold) {
  std::vector<Stretch> lost;
  given("a", {.minimum = granule, .lost = [&](Stretch stretch) { lost.push_back(stretch); }});
  given("b");
  ASSERT_OK(pool->allocate("a", granule));
  const Size second = GIVEN_VALUE(pool->allocate("a", 2 * granule, evictable));
  ASSERT_OK(pool->allocate("b", 2 * granule));
  EXPECT_EQ(lost, (std::vector<Stretch>{{second, 2 * granule}}));
  EXPECT_EQ(outcome(pool->deallocate("a", {second, 2 * granule})), "not mapped");
  EXPECT_EQ(physical_of("a"), granule);
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, NoModelLosesContentsInVain) {
  std::vector<Stretch> lost;
  given("a", {.lost = [&](Stretch stretch) { lost.push_back(stretch); }});
  given("b");
  ASSERT_OK(pool->allocate("a", granule, evictable));
  ASSERT_OK(pool->allocate("a", 2 * granule));
  EXPECT_EQ(outcome(pool->allocate("b", 3 * granule)), "out of memory");
  EXPECT_TRUE(lost.empty());
}

// The model would take the notice for one about its new allocation.
TEST_F(SharedPoolTest, NothingIsAllocatedWhereAnEvictionHasNotBeenReported) {
  std::vector<Stretch> fresh;
  given("a", {.lost = [&](Stretch lost) {
          for (const Stretch& one : fresh) EXPECT_FALSE(lost.overlaps(one)) << one.offset;
          EXPECT_EQ(outcome(pool->allocate_at("a", lost)), "already mapped");
          EXPECT_SOUND(*pool);
          if (!fresh.empty()) return;
          fresh.push_back({GIVEN_VALUE(pool->allocate("a", granule)), granule});
        }});
  given("b");
  for (int i = 0; i < 3; ++i) ASSERT_OK(pool->allocate("a", granule, evictable));
  ASSERT_OK(pool->allocate("b", 3 * granule));
  EXPECT_EQ(fresh.size(), 1u);
  ASSERT_OK(pool->deallocate("b", {0, 3 * granule}));
  ASSERT_OK(pool->allocate_at("a", {0, 3 * granule}));
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, ContentsAreKeptWhileThereIsRoom) {
  const CUdeviceptr base = given("a");
  given("b");
  const Size at = GIVEN_VALUE(pool->allocate("a", 2 * granule));
  fill_pattern(base + at, 4096, 1);
  ASSERT_OK(pool->deactivate("a"));
  EXPECT_FALSE(GIVEN_VALUE(pool->model_stats("a")).is_active);
  EXPECT_EQ(GIVEN_VALUE(pool->model_stats("a")).memory.mapped_granules, 0u);
  EXPECT_EQ(outcome(pool->allocate("a", granule)), "not mapped");
  EXPECT_EQ(outcome(pool->deallocate("a", {at, granule})), "not mapped");
  ASSERT_OK(pool->deactivate("a"));
  ASSERT_OK(pool->allocate("b", 2 * granule));
  EXPECT_EQ(GIVEN_VALUE(pool->activate("a")), Activation::Kept);
  EXPECT_EQ(GIVEN_VALUE(pool->activate("a")), Activation::Kept);
  expect_pattern(base + at, 4096, 1);
  expect_sum({"a", "b"});
}

TEST_F(SharedPoolTest, ADeactivatedModelLosesMemoryAndIsTold) {
  std::vector<Stretch> lost;
  const CUdeviceptr base = given("a", {.lost = [&](Stretch stretch) { lost.push_back(stretch); }});
  given("b");
  const Size at = GIVEN_VALUE(pool->allocate("a", 3 * granule));
  ASSERT_OK(pool->deactivate("a"));
  ASSERT_OK(pool->allocate("b", 2 * granule));
  EXPECT_EQ(lost, (std::vector<Stretch>{{0, 8 * granule}}));
  EXPECT_EQ(outcome(pool->activate("a")), "out of memory");
  ASSERT_OK(pool->unregister_model("b"));
  EXPECT_EQ(GIVEN_VALUE(pool->activate("a")), Activation::Lost);
  fill_pattern(base + at, 4096, 2);
  expect_pattern(base + at, 4096, 2);
  expect_sum({"a"});
}

TEST_F(SharedPoolTest, TwoModelsTakeTurns) {
  given("a");
  given("b");
  ASSERT_OK(pool->allocate("a", 3 * granule));
  ASSERT_OK(pool->deactivate("a"));
  ASSERT_OK(pool->allocate("b", 3 * granule));
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_OK(pool->deactivate(turn % 2 == 0 ? "b" : "a"));
    EXPECT_EQ(GIVEN_VALUE(pool->activate(turn % 2 == 0 ? "a" : "b")), Activation::Lost);
    expect_sum({"a", "b"});
  }
}

TEST_F(SharedPoolTest, ACallbackMayUseThePool) {
  given("a", {.reclaim = [&](Size) {
          EXPECT_OK(pool->deactivate("a"));
          EXPECT_OK(pool->model_stats("a"));
          EXPECT_GT(pool->stats().models, 0u);
        }});
  given("b");
  ASSERT_OK(pool->allocate("a", 3 * granule));
  // The callback runs, and the memory that it deactivates is taken.
  ASSERT_OK(pool->allocate("b", 2 * granule));
  EXPECT_EQ(physical_of("a"), 0u);
}

TEST_F(SharedPoolTest, UnregisteringWaitsForACallbackInAnotherThread) {
  std::atomic<bool> in_callback{false};
  std::atomic<bool> left_callback{false};
  given("a", {.reclaim = [&](Size) {
          in_callback = true;
          std::this_thread::sleep_for(std::chrono::milliseconds{30});
          left_callback = true;
        }});
  given("b");
  ASSERT_OK(pool->allocate("a", 4 * granule));
  std::thread asks{[&] { (void)pool->allocate("b", granule); }};
  while (!in_callback) std::this_thread::yield();
  EXPECT_OK(pool->unregister_model("a"));
  EXPECT_TRUE(left_callback);
  asks.join();
}

TEST_F(SharedPoolTest, TenThousandModelsCostNoExtraDriverCalls) {
  constexpr int count = 10'000;
  for (int i = 0; i < count; ++i) {
    ASSERT_OK(pool->register_model("model " + std::to_string(i),
                                   {.capacity = granule, .priority = i % 7}));
  }
  // Measures cost as a number of driver calls, since clocks are unreliable on a busy machine: with
  // many models there are no more calls than with one.
  const std::uint64_t before = simulated() ? sim()->calls(nullptr) : 0;
  ASSERT_OK(pool->allocate("model 5000", granule));
  ASSERT_OK(pool->deallocate("model 5000", {0, granule}));
  if (simulated()) {
    EXPECT_LE(sim()->calls(nullptr) - before, 8u);
  }
  EXPECT_EQ(pool->stats().models, static_cast<std::size_t>(count));
}

}  // namespace
}  // namespace cuvmm::test
