// SPDX-License-Identifier: Apache-2.0
// Two blocks that do not both fit on the device, of which only one is used. Measures its speed
// while it is spilled, and once cuvmm has had time to migrate it back. A plain program over the
// driver, for `cuvmm run --limit 8G --spill host:16G` (tools/gpu_parts/placement.sh).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bench/must_work.hpp"

namespace cuvmm::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Returns 0 if there is no memory for the block.
CUdeviceptr filled(std::size_t size, unsigned char byte) {
  CUdeviceptr address = 0;
  if (CALL(cuMemAlloc)(&address, size) == CUDA_ERROR_OUT_OF_MEMORY) return 0;
  MUST_WORK(cuMemsetD8, address, byte, size);
  return address;
}

// Reads and writes the whole block once. Returns GB/s.
double use(CUdeviceptr address, std::size_t size) {
  const auto began = Clock::now();
  MUST_WORK(cuMemsetD8, address, 3, size);
  MUST_WORK(cuCtxSynchronize);
  return static_cast<double>(size) / std::chrono::duration<double>(Clock::now() - began).count() /
         1e9;
}

// Each block takes three quarters of the memory within the limit.
void UseSpilledBlock(benchmark::State& state) {
  use_device();
  std::size_t free = 0;
  std::size_t total = 0;
  MUST_WORK(cuMemGetInfo, &free, &total);
  constexpr std::size_t MiB = std::size_t{1} << 20;
  const std::size_t size = total / 4 * 3 / (2 * MiB) * (2 * MiB);
  const CUdeviceptr unused = filled(size, 1);
  const CUdeviceptr used = filled(size, 2);
  if (unused == 0 || used == 0) {
    state.SkipWithError("more memory than the device has: run it with --spill");
    if (unused != 0) MUST_WORK(cuMemFree, unused);
    return;
  }
  double first = 0;
  double settled = 0;
  for ([[maybe_unused]] auto _ : state) {
    first = use(used, size);
    const auto until = Clock::now() + std::chrono::seconds{15};
    while (Clock::now() < until) settled = use(used, size);
    settled = std::max({use(used, size), use(used, size), use(used, size)});
  }
  unsigned char there = 0;
  MUST_WORK(cuMemcpyDtoH, &there, unused + size - 1, 1);
  if (there != 1) state.SkipWithError("the contents of evicted memory have changed");
  state.counters["first_gb_s"] = first;
  state.counters["settled_gb_s"] = settled;
  MUST_WORK(cuMemFree, used);
  MUST_WORK(cuMemFree, unused);
}
BENCHMARK(UseSpilledBlock)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
