// SPDX-License-Identifier: Apache-2.0
// Every pool operation with each of its driver calls failing in turn.
#include "pool_world.hpp"
#include "support/fault_sweep.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

using PoolFaults = VmmTest;

// A pool with two allocations and a movable one, no two in the same granule.
struct ElasticWorld : PoolWorld {
  explicit ElasticWorld(const Driver& with) : PoolWorld(with), pool(elastic(8)) {
    give({100, granule()}, 10, {});  // into the second granule
    give({3 * granule(), 4096}, 20, {});
    give({4 * granule() + 8192, 4096}, 30, {.movable = Movable::Yes});
  }
  void give(Stretch stretch, std::uint64_t seed, AllocationTraits traits) {
    if (const auto made = pool->allocate_at(stretch, traits); !made.ok()) {
      throw std::runtime_error(made.error().text());
    }
    mark(*pool, stretch, seed);
  }
  std::string describe() const {
    const ElasticStats stats = pool->stats();
    std::string text = std::to_string(stats.capacity) + " " + std::to_string(stats.allocated) +
                       " " + std::to_string(stats.physical) + " " +
                       std::to_string(stats.mapped_granules) + ", kept " +
                       std::to_string(places->cached_bytes()) + "\n";
    for (Size at = 0; at < stats.capacity; at += granule() / 4) {
      text += pool->is_mapped({at, 1}) ? '1' : '0';
    }
    for (const auto& [stretch, seed] :
         {std::pair{Stretch{100, granule()}, 10}, std::pair{Stretch{3 * granule(), 4096}, 20},
          std::pair{Stretch{4 * granule() + 8192, 4096}, 30}}) {
      if (!pool->is_mapped(stretch)) continue;
      text += "\n" + std::to_string(stretch.offset) + " holds";
      for (const std::byte byte : read(pool->base_address() + stretch.offset, 64)) {
        text += " " + std::to_string(static_cast<int>(byte));
      }
    }
    return text;
  }
  std::unique_ptr<ElasticPool> pool;
};

Scenario<ElasticWorld> scenario(std::function<Result<void>(ElasticWorld&)> when,
                                std::function<void(ElasticWorld&)> then,
                                std::function<void(ElasticWorld&)> before = {}) {
  return {.given =
              [before](const Driver& with) {
                auto world = std::make_unique<ElasticWorld>(with);
                if (before) before(*world);
                return world;
              },
          .when = std::move(when),
          .then = std::move(then),
          .snapshot = [](ElasticWorld& world) { return world.describe(); },
          .check = [](ElasticWorld& world) { ASSERT_SOUND(*world.pool); },
          .makes_up_for =
              [](const std::string& name, CUresult fault) {
                // Switching the capture mode, restoring the caller's context and telling a context
                // from an earlier one are best effort. An allocation that finds no memory is tried
                // once more.
                return name == "cuThreadExchangeStreamCaptureMode" || name == "cuCtxGetCurrent" ||
                       name == "cuCtxPopCurrent" || name == "cuCtxPushCurrent" ||
                       name == "cuStreamDestroy" || name == "cuDevicePrimaryCtxRelease" ||
                       name == "cuDeviceGetAttribute" || name == "cuCtxGetId" ||
                       (name == "cuMemCreate" && fault == CUDA_ERROR_OUT_OF_MEMORY);
              }};
}

TEST_F(PoolFaults, CreatingAPool) {
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    Scenario<ElasticWorld> made = scenario(
        [](ElasticWorld& world) -> Result<void> {
          const auto places = TRY(world.try_places({}));
          const auto pool = TRY(ElasticPool::create(
              places, {.capacity = world.granule(), .most_capacity = 2 * world.granule()}));
          return pool->allocate_at({0, 1});
        },
        [](ElasticWorld&) {});
    for_each_failing_call(made, fault);
  }
}

TEST_F(PoolFaults, AllocatingOverSeveralGranules) {
  sweep_faults(scenario(
      [](ElasticWorld& world) {
        return world.pool->allocate_at({world.granule() + 100, world.granule() * 2 - 100});
      },
      [](ElasticWorld& world) { EXPECT_EQ(world.pool->stats().mapped_granules, 5u); }));
}

TEST_F(PoolFaults, Deallocating) {
  sweep_faults(scenario(
      [](ElasticWorld& world) {
        return world.pool->deallocate({100, world.granule()});
      },
      [](ElasticWorld& world) { EXPECT_EQ(world.pool->stats().mapped_granules, 2u); }));
}

TEST_F(PoolFaults, Compacting) {
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for_each_failing_call(scenario(
                              [](ElasticWorld& world) -> Result<void> {
                                TRY(world.pool->compact());
                                return {};
                              },
                              [](ElasticWorld& world) {
                                EXPECT_EQ(world.pool->stats().physical, 2 * world.granule());
                              }),
                          fault);
  }
}

TEST_F(PoolFaults, SeparatingSharers) {
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for_each_failing_call(
        scenario(
            [](ElasticWorld& world) -> Result<void> {
              TRY(world.pool->compact());
              return world.pool->allocate_at({3 * world.granule() + 8192, 8192});
            },
            [](ElasticWorld& world) {
              EXPECT_EQ(world.pool->stats().physical, 3 * world.granule());
              expect_mark(*world.pool, {3 * world.granule(), 4096}, 20);
              expect_mark(*world.pool, {5 * world.granule() + 8192, 4096}, 40);
            },
            [](ElasticWorld& world) {
              world.give({5 * world.granule() + 8192, 4096}, 40, {});
              if (!world.pool->deallocate({4 * world.granule() + 8192, 4096}).ok() ||
                  !world.pool->compact().ok() ||
                  world.pool->stats().physical != 2 * world.granule() ||
                  world.pool->allocate_at({3 * world.granule() + 8192, 8192}).ok()) {
                throw std::runtime_error("they do not share");
              }
            }),
        fault);
  }
}

TEST_F(PoolFaults, ParkingAndUnparking) {
  sweep_faults(scenario([](ElasticWorld& world) { return world.pool->park(); },
                        [](ElasticWorld& world) { EXPECT_TRUE(world.pool->is_parked()); }));
  sweep_faults(scenario(
      [](ElasticWorld& world) -> Result<void> {
        TRY(world.pool->unpark());
        return {};
      },
      [](ElasticWorld& world) { EXPECT_FALSE(world.pool->is_parked()); },
      [](ElasticWorld& world) {
        if (!world.pool->park().ok()) throw std::runtime_error("cannot park");
      }));
}

TEST_F(PoolFaults, ReplacingLostMemory) {
  sweep_faults(scenario(
      [](ElasticWorld& world) -> Result<void> {
        TRY(world.pool->unpark());
        return {};
      },
      [](ElasticWorld& world) { EXPECT_EQ(world.pool->stats().mapped_granules, 4u); },
      [](ElasticWorld& world) {
        if (!world.pool->park().ok() || world.pool->drop_parked() == 0) {
          throw std::runtime_error("cannot park");
        }
      }));
}

TEST_F(PoolFaults, FencingAndWaiting) {
  const GivenStream stream;
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for_each_failing_call(scenario(
                              [&](ElasticWorld& world) -> Result<void> {
                                TRY(world.pool->fence(stream));
                                return world.pool->wait_for_fences();
                              },
                              [](ElasticWorld&) {}),
                          fault);
  }
}

// The accounting of a shared pool stays correct after every failure.
struct ModelsWorld : PoolWorld {
  explicit ModelsWorld(const Driver& with)
      : PoolWorld(with), pool(GIVEN_VALUE(SharedPool::create(places, 4 * granule()))) {
    const Size capacity = 4 * granule();
    GIVEN_VALUE(pool->register_model("a", {.capacity = capacity, .minimum = granule()}));
    GIVEN_VALUE(pool->register_model("b", {.capacity = capacity}));
    GIVEN_VALUE(pool->allocate("a", 2 * granule()));
    GIVEN_VALUE(pool->allocate("b", granule(), {.evictable = Evictable::Yes}));
  }
  std::string describe() const {
    std::string text =
        std::to_string(pool->stats().physical) + " of " + std::to_string(pool->stats().models);
    for (const char* id : {"a", "b"}) {
      const auto stats = pool->model_stats(id);
      if (!stats.ok()) continue;
      text += std::string(" ") + id + " " + std::to_string(stats->memory.physical) + " " +
              std::to_string(stats->memory.allocated) + " " +
              (stats->is_active ? "active" : "inactive");
    }
    return text;
  }
  std::unique_ptr<SharedPool> pool;
};

Scenario<ModelsWorld> models(std::function<Result<void>(ModelsWorld&)> when,
                             std::function<void(ModelsWorld&)> then) {
  return {.given = [](const Driver& with) { return std::make_unique<ModelsWorld>(with); },
          .when = std::move(when),
          .then = std::move(then),
          .snapshot = [](ModelsWorld& world) { return world.describe(); },
          .check = [](ModelsWorld& world) { ASSERT_SOUND(*world.pool); },
          .makes_up_for =
              [](const std::string& name, CUresult fault) {
                // If memory is short, the other model's is taken and the call is tried again.
                return name == "cuDeviceGetAttribute" || fault == CUDA_ERROR_OUT_OF_MEMORY;
              }};
}

TEST_F(PoolFaults, RegisteringAModelAndAllocating) {
  sweep_faults(models(
      [](ModelsWorld& world) -> Result<void> {
        TRY(world.pool->register_model("c", {.capacity = world.granule()}));
        return {};
      },
      [](ModelsWorld& world) { EXPECT_EQ(world.pool->stats().models, 3u); }));
  sweep_faults(models(
      [](ModelsWorld& world) -> Result<void> {
        TRY(world.pool->allocate("a", world.granule()));
        return {};
      },
      [](ModelsWorld& world) {
        EXPECT_EQ(GIVEN_VALUE(world.pool->model_stats("a")).memory.physical, 3 * world.granule());
      }));
}

TEST_F(PoolFaults, DeactivatingAModel) {
  sweep_faults(models([](ModelsWorld& world) { return world.pool->deactivate("a"); },
                      [](ModelsWorld& world) {
                        EXPECT_FALSE(GIVEN_VALUE(world.pool->model_stats("a")).is_active);
                      }));
}

TEST_F(PoolFaults, UnregisteringAlwaysGivesEverythingBack) {
  for (std::uint64_t number = 1; number <= 12; ++number) {
    FaultyDriver faulty{driver()};
    ModelsWorld world{faulty};
    faulty.fail_call(number, CUDA_ERROR_UNKNOWN);
    EXPECT_OK(world.pool->unregister_model("a"));
    faulty.stop_failing();
    EXPECT_EQ(world.pool->stats().physical, world.granule());
    ASSERT_SOUND(*world.pool);
  }
  EXPECT_EQ(retry_releases(), 0u);
}

}  // namespace
}  // namespace cuvmm::test
