// SPDX-License-Identifier: Apache-2.0
// Measures what resize detection costs calls that are not part of a resize, in a process with large
// blocks, over the simulated driver. Goal: at most 10 ns.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench_driver.hpp"
#include "hook/door.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t block = 64 * MiB;

template <Call call>
typename hook::Row<call>::Function door() {
  return reinterpret_cast<typename hook::Row<call>::Function>(
      hook::all_doors()[static_cast<std::size_t>(call)].legacy);
}

// Two blocks that could be a resize's old and new block.
struct World {
  World() {
    ::setenv("VMM_SIM_BACKING", "none", 1);
    driver_source().path.store(simulated_driver_path());
    CUcontext context = nullptr;
    door<Call::cuInit>()(0);
    door<Call::cuDevicePrimaryCtxRetain>()(&context, 0);
    door<Call::cuCtxSetCurrent>()(context);
    for (CUdeviceptr* one : {&from, &to}) {
      if (door<Call::cuMemAlloc_v2>()(one, block) != CUDA_SUCCESS) std::abort();
    }
    resizer = Engine::get()->serving()->resizer();
    if (resizer == nullptr || !resizer->may_be_deferred(block)) std::abort();
  }
  static World& get() {
    static auto* world = new World;
    return *world;
  }

  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  Resizer* resizer = nullptr;
};

// The same check as in a copy's hook (hook/serve.hpp).
Answer try_defer_copy(World& world, std::size_t size) {
  if (!world.resizer->may_be_deferred(size)) return std::nullopt;
  return world.resizer->defer(world.to, world.from, size, {});
}

void ASmallCopy(benchmark::State& state) {
  World& world = World::get();
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(try_defer_copy(world, 4096));
}
BENCHMARK(ASmallCopy);

// A copy after other work, as nearly every copy is.
void ALargeCopyAfterWork(benchmark::State& state) {
  World& world = World::get();
  door<Call::cuMemsetD8Async>()(world.from, 0, 64, nullptr);
  for ([[maybe_unused]] auto _ : state) {
    if (try_defer_copy(world, block)) std::abort();
  }
}
BENCHMARK(ALargeCopyAfterWork);

void AFree(benchmark::State& state) {
  World& world = World::get();
  const auto ordinary = [] { return CUDA_SUCCESS; };
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(world.resizer->free(world.from, ordinary));
  }
}
BENCHMARK(AFree);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
