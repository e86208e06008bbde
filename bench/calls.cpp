// SPDX-License-Identifier: Apache-2.0
// Measures the most frequent calls of programs, as a plain program over the driver. Run natively
// and under `cuvmm run` in each mode, in turns, it shows what cuvmm costs
// (tools/gpu_parts/calls.sh). Times are the calling thread's; where possible, the device is not the
// bottleneck.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>

#include "bench/must_work.hpp"
#include "cuvmm/sim.h"

// The kernel for the simulated driver.
CUVMM_SIM_KERNEL(nothing) {
  static_cast<void>(launch);
}

namespace cuvmm::bench {
namespace {

constexpr const char* empty_kernel = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry nothing() { ret; }
)";
constexpr int calls_between_waits = 256;  // fewer than fit into the driver's queue
constexpr std::size_t MiB = std::size_t{1} << 20;

class Card {
 public:
  Card() {
    MUST_WORK(cuInit, 0);
    MUST_WORK(cuDeviceGet, &device_, 0);
    MUST_WORK(cuDevicePrimaryCtxRetain, &context_, device_);
    MUST_WORK(cuCtxSetCurrent, context_);
    MUST_WORK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST_WORK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST_WORK(cuMemAlloc, &memory, 64 * MiB);
    CUmodule module = nullptr;
    MUST_WORK(cuModuleLoadData, &module, empty_kernel);
    MUST_WORK(cuModuleGetFunction, &kernel, module, "nothing");
  }

  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUfunction kernel = nullptr;

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

Card& card() {
  static Card one;
  return one;
}

// Waits for the device now and then, outside the measured time.
template <class Call>
void submit(benchmark::State& state, Call call) {
  card();
  int submitted = 0;
  for (auto _ : state) {
    call();
    if (++submitted < calls_between_waits) continue;
    submitted = 0;
    state.PauseTiming();
    MUST_WORK(cuStreamSynchronize, card().stream);
    state.ResumeTiming();
  }
  MUST_WORK(cuStreamSynchronize, card().stream);
}

void Launch(benchmark::State& state) {
  submit(state, [] {
    MUST_WORK(cuLaunchKernel, card().kernel, 1, 1, 1, 1, 1, 1, 0, card().stream, nullptr, nullptr);
  });
}

void RecordEvent(benchmark::State& state) {
  submit(state, [] { MUST_WORK(cuEventRecord, card().event, card().stream); });
}

void CopyOnDevice4KiB(benchmark::State& state) {
  submit(state, [] {
    MUST_WORK(cuMemcpyDtoDAsync, card().memory, card().memory + MiB, 4096, card().stream);
  });
}

void Set4KiB(benchmark::State& state) {
  submit(state, [] { MUST_WORK(cuMemsetD8Async, card().memory, 0, 4096, card().stream); });
}

void QueryEvent(benchmark::State& state) {
  card();
  MUST_WORK(cuEventRecord, card().event, card().stream);
  MUST_WORK(cuStreamSynchronize, card().stream);
  for (auto _ : state) MUST_WORK(cuEventQuery, card().event);
}

void CurrentContext(benchmark::State& state) {
  card();
  CUcontext context = nullptr;
  for (auto _ : state) MUST_WORK(cuCtxGetCurrent, &context);
}

// A kernel and the wait for it, as in a program that waits after each step.
void LaunchAndWait(benchmark::State& state) {
  card();
  for (auto _ : state) {
    MUST_WORK(cuLaunchKernel, card().kernel, 1, 1, 1, 1, 1, 1, 0, card().stream, nullptr, nullptr);
    MUST_WORK(cuStreamSynchronize, card().stream);
  }
}

void OrderedPair(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  submit(state, [size] {
    CUdeviceptr address = 0;
    MUST_WORK(cuMemAllocAsync, &address, size, card().stream);
    MUST_WORK(cuMemFreeAsync, address, card().stream);
  });
}

void BlockingPair(benchmark::State& state) {
  card();
  const auto size = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    CUdeviceptr address = 0;
    MUST_WORK(cuMemAlloc, &address, size);
    MUST_WORK(cuMemFree, address);
  }
}

BENCHMARK(Launch);
BENCHMARK(LaunchAndWait);
BENCHMARK(RecordEvent);
BENCHMARK(QueryEvent);
BENCHMARK(CopyOnDevice4KiB);
BENCHMARK(Set4KiB);
BENCHMARK(CurrentContext);
BENCHMARK(OrderedPair)->Arg(4096)->Arg(2 * MiB)->Arg(64 * MiB);
BENCHMARK(BlockingPair)->Arg(4096)->Arg(256 * 1024)->Arg(2 * MiB)->Arg(64 * MiB);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
