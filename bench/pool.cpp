// SPDX-License-Identifier: Apache-2.0
// Measures the pools' own time. Goals: allocating and deallocating a cached granule take at most 1
// us each beyond the driver's calls; statistics cost the same whatever a pool holds; 10,000
// registered models slow none down; activating a model of 10 GiB on a card, in chunks of 64 MiB,
// takes at most 5% more than the driver's own calls.
#include <string>

#include "bench/bench_driver.hpp"
#include "pool/shared_pool.hpp"

namespace cuvmm::bench {
namespace {

const Location here = Location::device(0);

struct Ground {
  explicit Ground(const Driver& with, Size granule = usual_granule) : driver(with), store(with) {
    need_ok(store.serve(here, std::make_shared<LocalBudget>()), "serve device 0");
    places =
        need_ok(PoolPlaces::create(with, [this](Location) -> Result<ChunkStore*> { return &store; },
                                   {.granule = granule}),
                "places");
  }
  std::unique_ptr<ElasticPool> pool(Size capacity) const {
    return need_ok(ElasticPool::create(places, {.capacity = capacity, .most_capacity = capacity}),
                   "make a pool");
  }

  const Driver& driver;
  ChunkStore store;
  std::shared_ptr<const PoolPlaces> places;
};

// Runs over a driver that does nothing, so that only the pool's own time remains.
void AllocateAndDeallocateCachedGranules(benchmark::State& state) {
  const auto granules = static_cast<Size>(state.range(0));
  const Ground ground{silent_driver()};
  const auto pool = ground.pool(4096 * usual_granule);
  const Stretch stretch{7 * usual_granule, granules * usual_granule};
  constexpr int rounds = 100;
  Times allocate{Clock::Thread};
  Times deallocate{Clock::Thread};
  Times both{Clock::Thread};
  need_ok(pool->allocate_at(stretch), "allocate");
  need_ok(pool->deallocate(stretch), "deallocate");
  for ([[maybe_unused]] auto _ : state) {
    double seconds = both.measure([&] {
      for (int i = 0; i < rounds; ++i) {
        need_ok(pool->allocate_at(stretch), "allocate");
        need_ok(pool->deallocate(stretch), "deallocate");
      }
    });
    seconds += allocate.measure([&] { need_ok(pool->allocate_at(stretch), "allocate"); });
    seconds += deallocate.measure([&] { need_ok(pool->deallocate(stretch), "deallocate"); });
    state.SetIterationTime(seconds);
  }
  state.counters["own_us_a_pair"] = both.median_microseconds() / rounds;
  state.counters["own_us_a_granule"] =
      both.median_microseconds() / rounds / static_cast<double>(granules);
}
BENCHMARK(AllocateAndDeallocateCachedGranules)
    ->ArgName("granules")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->UseManualTime()
    ->Iterations(101)
    ->Unit(benchmark::kMicrosecond);

void StatsOfAPool(benchmark::State& state) {
  const auto count = static_cast<Size>(state.range(0));
  const Ground ground{silent_driver()};
  const auto pool = ground.pool(2 * count * usual_granule);
  for (Size i = 0; i < count; ++i) {
    need_ok(pool->allocate_at({2 * i * usual_granule, 4096}), "allocate");
  }
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(pool->stats());
}
BENCHMARK(StatsOfAPool)->ArgName("allocations")->Arg(10)->Arg(1000)->Arg(100'000);

void OneModelAmongMany(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  const Ground ground{silent_driver()};
  const auto pool = need_ok(SharedPool::create(ground.places, 64 * GiB), "make a pool");
  for (int i = 0; i < count; ++i) {
    need_ok(pool->register_model("model " + std::to_string(i),
                                 {.capacity = 64 * usual_granule, .priority = i % 5}),
            "register");
  }
  const std::string chosen = "model " + std::to_string(count / 2);
  for ([[maybe_unused]] auto _ : state) {
    const Size at = need_ok(pool->allocate(chosen, usual_granule), "allocate");
    need_ok(pool->deallocate(chosen, {at, usual_granule}), "deallocate");
  }
}
BENCHMARK(OneModelAmongMany)->ArgName("models")->Arg(1)->Arg(100)->Arg(10'000);

// Maps the model's cached chunks again, and maps the same chunks with the driver's own calls, in
// turns. 10 GiB, or half of the device's memory.
void ActivateAModel(benchmark::State& state) {
  const Size granule = static_cast<Size>(state.range(0)) * MiB;
  size_t memory = 0;
  size_t total = 0;
  need_success(driver().cuMemGetInfo(&memory, &total), "cuMemGetInfo");
  const Size size = round_down(std::min<Size>(10 * GiB, memory / 4), granule);
  const Ground ground{driver(), granule};
  const auto pool = need_ok(SharedPool::create(ground.places, size), "make a pool");
  need_ok(pool->register_model("model", {.capacity = size}), "register");
  need_ok(pool->allocate("model", size), "allocate");

  const std::size_t count = size / granule;
  const Reservation addresses = need_ok(Reservation::create(driver(), size, granule), "reserve");
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < count; ++i) {
    chunks.push_back(need_ok(Chunk::create(driver(), granule, here, Export::No), "create"));
  }
  Times direct{};
  Times activate{};
  Times deactivate{};
  Times direct_unmap{};
  for ([[maybe_unused]] auto _ : state) {
    direct.measure([&] {
      for (std::size_t i = 0; i < count; ++i) {
        need_success(
            driver().cuMemMap(addresses.address() + i * granule, granule, 0, chunks[i].handle(), 0),
            "cuMemMap");
      }
      const CUmemAccessDesc access{here.cuda(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      need_success(driver().cuMemSetAccess(addresses.address(), size, &access, 1), "access");
    });
    direct_unmap.measure([&] {
      for (std::size_t i = 0; i < count; ++i) {
        need_success(driver().cuMemUnmap(addresses.address() + i * granule, granule), "unmap");
      }
    });
    deactivate.measure([&] { need_ok(pool->deactivate("model"), "deactivate"); });
    state.SetIterationTime(activate.measure([&] { need_ok(pool->activate("model"), "activate"); }));
  }
  state.counters["GiB"] = static_cast<double>(size) / static_cast<double>(GiB);
  state.counters["activate_us"] = activate.median_microseconds();
  state.counters["driver_us"] = direct.median_microseconds();
  state.counters["activate_ratio"] = activate.median_microseconds() / direct.median_microseconds();
  state.counters["deactivate_ratio"] =
      deactivate.median_microseconds() / direct_unmap.median_microseconds();
}
BENCHMARK(ActivateAModel)
    ->ArgName("MiB")
    ->Arg(2)
    ->Arg(64)
    ->Arg(256)
    ->UseManualTime()
    ->Iterations(31)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  return cuvmm::bench::run(argc, argv);
}
