// SPDX-License-Identifier: Apache-2.0
// Compares the mapping core with the same driver calls made directly, interleaved in one run.
// Goals: our own time is at most 2 us per chunk planned and committed and 100 ns per take and give;
// on a card, the core is within 5% of the calls alone. The simulated blocking pair, at most 5 us,
// keeps tests fast.
#include <cstdlib>
#include <random>

#include "bench/bench_driver.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm::bench {
namespace {

const Location here = Location::device(0);

// Chunks, and contiguous addresses for all of them.
struct Ground {
  Ground(const Driver& with, Size chunk_size, std::size_t count)
      : driver(with),
        store(with),
        addresses(need_ok(Reservation::create(with, chunk_size * count, usual_granule),
                          "reserve addresses")),
        mapping(Mapping::of(addresses)) {
    need_ok(store.serve(here, std::make_shared<LocalBudget>()), "serve device 0");
    chunks = need_ok(store.take_many({chunk_size, here, Export::No}, count), "create chunks");
  }

  Size offset_of(std::size_t chunk) const { return chunk * chunks[0]->size(); }

  void map_directly() const {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      need_success(driver.cuMemMap(addresses.address() + offset_of(i), chunks[i]->size(), 0,
                                   chunks[i]->handle(), 0),
                   "cuMemMap");
    }
    const CUmemAccessDesc access{here.cuda(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    need_success(driver.cuMemSetAccess(addresses.address(), addresses.size(), &access, 1),
                 "cuMemSetAccess");
  }
  void unmap_directly() const {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      need_success(driver.cuMemUnmap(addresses.address() + offset_of(i), chunks[i]->size()),
                   "cuMemUnmap");
    }
  }
  void map_by_plan() {
    MapPlan plan;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      plan.map(mapping, offset_of(i), chunks[i], AccessSet::of(0));
    }
    need_ok(plan.commit(), "commit");
  }
  void unmap_by_plan() {
    MapPlan plan;
    plan.unmap(mapping, Stretch{0, mapping.size()});
    need_ok(plan.commit(), "commit");
  }

  const Driver& driver;
  ChunkStore store;
  Reservation addresses;
  Mapping mapping;
  std::vector<ChunkRef> chunks;
};

// Alternates between the core and direct calls, so that both run under the same conditions.
struct Comparison {
  explicit Comparison(Clock clock)
      : core_map(clock), core_unmap(clock), direct_map(clock), direct_unmap(clock) {}
  Times core_map, core_unmap, direct_map, direct_unmap;

  // Runs one turn of each. Returns the time of the core's turn.
  double turn(Ground& ground) {
    direct_map.measure([&] { ground.map_directly(); });
    direct_unmap.measure([&] { ground.unmap_directly(); });
    return core_map.measure([&] { ground.map_by_plan(); }) +
           core_unmap.measure([&] { ground.unmap_by_plan(); });
  }
};

void own_time_a_chunk(benchmark::State& state, const Driver& with) {
  constexpr std::size_t count = 1000;
  Ground ground{with, usual_granule, count};
  Comparison comparison{Clock::Thread};
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(comparison.turn(ground));
  const auto own = [](const Times& core, const Times& direct) {
    return (core.median_microseconds() - direct.median_microseconds()) / count;
  };
  state.counters["own_map_us"] = own(comparison.core_map, comparison.direct_map);
  state.counters["own_unmap_us"] = own(comparison.core_unmap, comparison.direct_unmap);
  state.counters["direct_map_us"] = comparison.direct_map.median_microseconds() / count;
  state.counters["direct_unmap_us"] = comparison.direct_unmap.median_microseconds() / count;
}

void PlanAndCommit1000Chunks(benchmark::State& state) {
  own_time_a_chunk(state, driver());
}
void PlanAndCommit1000ChunksOverASilentDriver(benchmark::State& state) {
  own_time_a_chunk(state, silent_driver());
}
BENCHMARK(PlanAndCommit1000Chunks)->UseManualTime()->Iterations(101)->Unit(benchmark::kMillisecond);
BENCHMARK(PlanAndCommit1000ChunksOverASilentDriver)
    ->UseManualTime()
    ->Iterations(101)
    ->Unit(benchmark::kMillisecond);

// 512 MiB per turn, or one chunk of 1 GiB.
void CoreAgainstDirectCalls(benchmark::State& state) {
  const Size chunk_size = static_cast<Size>(state.range(0)) * MiB;
  const std::size_t count = chunk_size >= 512 * MiB ? 1 : 512 * MiB / chunk_size;
  Ground ground{driver(), chunk_size, count};
  Comparison comparison{Clock::Wall};
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(comparison.turn(ground));
  state.counters["map_ratio"] =
      comparison.core_map.median_microseconds() / comparison.direct_map.median_microseconds();
  state.counters["unmap_ratio"] =
      comparison.core_unmap.median_microseconds() / comparison.direct_unmap.median_microseconds();
  state.counters["direct_map_us"] = comparison.direct_map.median_microseconds();
  state.counters["direct_unmap_us"] = comparison.direct_unmap.median_microseconds();
}
BENCHMARK(CoreAgainstDirectCalls)
    ->ArgName("MiB")
    ->Arg(2)
    ->Arg(32)
    ->Arg(1024)
    ->UseManualTime()
    ->Iterations(101)
    ->Unit(benchmark::kMillisecond);

constexpr std::size_t many = 100'000;

// Half of 100,000 chunks are in use. Each round gives one of them back, the newest or a random one,
// and takes one; its time covers both.
template <class Choose>
void take_and_give(benchmark::State& state, Choose choose) {
  ChunkStore store{silent_driver()};
  need_ok(store.serve(here, std::make_shared<LocalBudget>()), "serve device 0");
  const ChunkKind kind{usual_granule, here, Export::No};
  std::vector<ChunkRef> in_use = need_ok(store.take_many(kind, many), "take");
  for (std::size_t i = 0; i < many; i += 2) store.give(std::move(in_use[i]));
  std::erase_if(in_use, [](const ChunkRef& chunk) { return !chunk; });
  for ([[maybe_unused]] auto _ : state) {
    ChunkRef& chosen = in_use[choose(in_use.size())];
    store.give(std::move(chosen));
    chosen = need_ok(store.take(kind), "take");
  }
  store.check();
}

void TakeAndGiveTheNewestOf100000(benchmark::State& state) {
  take_and_give(state, [](std::size_t count) { return count - 1; });
}
void TakeAndGiveAnyOf100000(benchmark::State& state) {
  std::minstd_rand random{1};
  take_and_give(state, [&](std::size_t count) { return random() % count; });
}
BENCHMARK(TakeAndGiveTheNewestOf100000);
BENCHMARK(TakeAndGiveAnyOf100000);

// The driver's own blocking pair. On the simulated driver, it limits the speed of tests.
void BlockingAllocAndFree(benchmark::State& state) {
  const Size size = static_cast<Size>(state.range(0)) * KiB;
  for ([[maybe_unused]] auto _ : state) {
    CUdeviceptr address = 0;
    need_success(driver().cuMemAlloc(&address, size), "cuMemAlloc");
    need_success(driver().cuMemFree(address), "cuMemFree");
  }
}
BENCHMARK(BlockingAllocAndFree)
    ->ArgName("KiB")
    ->Arg(4)
    ->Arg(2048)
    ->Arg(32768)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  return cuvmm::bench::run(argc, argv);
}
