// SPDX-License-Identifier: Apache-2.0
// Measures the cost of stream-ordered memory while other streams are busy. Run natively and under
// `cuvmm run` in turns, it shows whether a program waits or works when the driver does not
// (tools/gpu_parts/streams.sh).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "bench/must_work.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t KiB = std::size_t{1} << 10;
constexpr std::size_t MiB = std::size_t{1} << 20;

CUcontext context() {
  static CUcontext const primary = [] {
    CUcontext made = nullptr;
    MUST_WORK(cuInit, 0);
    MUST_WORK(cuDevicePrimaryCtxRetain, &made, 0);
    return made;
  }();
  MUST_WORK(cuCtxSetCurrent, primary);
  return primary;
}

double seconds_of(const auto& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void allocate_and_free(std::size_t size, CUstream stream) {
  CUdeviceptr address = 0;
  MUST_WORK(cuMemAllocAsync, &address, size, stream);
  MUST_WORK(cuMemFreeAsync, address, stream);
}

class Streams {
 public:
  Streams(std::size_t count, unsigned flags) : streams_(count) {
    for (CUstream& stream : streams_) MUST_WORK(cuStreamCreate, &stream, flags);
  }
  ~Streams() {
    for (CUstream stream : streams_) {
      MUST_WORK(cuStreamSynchronize, stream);
      MUST_WORK(cuStreamDestroy, stream);
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  auto begin() const { return streams_.begin(); }
  auto end() const { return streams_.end(); }

 private:
  std::vector<CUstream> streams_;
};

// Work that blocks a stream until released.
class Held {
 public:
  explicit Held(CUstream stream) {
    MUST_WORK(
        cuLaunchHostFunc, stream,
        [](void* self) {
          while (!static_cast<Held*>(self)->is_released_.load()) ::usleep(50);
        },
        this);
  }
  void release() { is_released_.store(true); }

 private:
  std::atomic<bool> is_released_{false};
};

// One stream of many. The others have allocated, worked and freed, and are idle.
void PairAmong64Streams(benchmark::State& state) {
  context();
  const Streams streams{64, CU_STREAM_NON_BLOCKING};
  for (CUstream stream : streams) {
    CUdeviceptr address = 0;
    MUST_WORK(cuMemAllocAsync, &address, 2 * MiB, stream);
    MUST_WORK(cuMemsetD8Async, address, 0, 4 * KiB, stream);
    MUST_WORK(cuMemFreeAsync, address, stream);
    MUST_WORK(cuStreamSynchronize, stream);
  }
  CUstream const stream = *streams.begin();
  int submitted = 0;
  for (auto _ : state) {
    allocate_and_free(2 * MiB, stream);
    if (++submitted % 256 != 0) continue;
    state.PauseTiming();
    MUST_WORK(cuStreamSynchronize, stream);
    state.ResumeTiming();
  }
}

// A blocking stream, whose allocations come after the legacy stream's work.
void pairs_on_a_blocking_stream(benchmark::State& state, bool legacy_is_busy) {
  constexpr int pairs = 100;
  context();
  const Streams streams{1, CU_STREAM_DEFAULT};
  CUstream const stream = *streams.begin();
  allocate_and_free(2 * MiB, stream);
  MUST_WORK(cuStreamSynchronize, stream);
  for (auto _ : state) {
    Held held{CU_STREAM_LEGACY};
    if (!legacy_is_busy) held.release(), MUST_WORK(cuStreamSynchronize, CU_STREAM_LEGACY);
    const double seconds = seconds_of([&] {
      for (int i = 0; i < pairs; ++i) allocate_and_free(2 * MiB, stream);
    });
    state.SetIterationTime(seconds / pairs);
    held.release();
    MUST_WORK(cuCtxSynchronize);
  }
}

void PairOnABlockingStream(benchmark::State& state) {
  pairs_on_a_blocking_stream(state, false);
}
void PairBehindABusyLegacyStream(benchmark::State& state) {
  pairs_on_a_blocking_stream(state, true);
}

// Two threads with their own default streams, one with long work, one with short steps. Measures
// the time of a step, which must not include the long work.
void ShortStepBesideALongThread(benchmark::State& state) {
  CUcontext const shared = context();
  std::atomic<bool> stop{false};
  std::thread long_thread{[&] {
    MUST_WORK(cuCtxSetCurrent, shared);
    while (!stop) {
      CUdeviceptr address = 0;
      MUST_WORK(cuMemAllocAsync, &address, 3 * MiB, CU_STREAM_PER_THREAD);
      MUST_WORK(
          cuLaunchHostFunc, CU_STREAM_PER_THREAD, [](void*) { ::usleep(50000); }, nullptr);
      MUST_WORK(cuMemsetD8Async, address, 1, MiB, CU_STREAM_PER_THREAD);
      MUST_WORK(cuMemFreeAsync, address, CU_STREAM_PER_THREAD);
      ::usleep(55000);
    }
    MUST_WORK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
  }};
  ::usleep(100000);
  std::size_t size = MiB;
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      CUdeviceptr address = 0;
      MUST_WORK(cuMemAllocAsync, &address, size += 70000, CU_STREAM_PER_THREAD);
      MUST_WORK(cuMemsetD8Async, address, 2, 4 * KiB, CU_STREAM_PER_THREAD);
      MUST_WORK(cuMemFreeAsync, address, CU_STREAM_PER_THREAD);
      MUST_WORK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    }));
    ::usleep(5000);
  }
  stop = true;
  long_thread.join();
}

// A block of a new size for one stream, while 50 other streams, each with blocked work, go on
// allocating and freeing, so that none of their freed memory can be reused.
void NewBlockAmong50BusyStreams(benchmark::State& state) {
  constexpr std::size_t busy = 50;
  context();
  std::uint32_t* open = nullptr;
  CUdeviceptr open_there = 0;
  MUST_WORK(cuMemHostAlloc, reinterpret_cast<void**>(&open), 4 * KiB, CU_MEMHOSTALLOC_DEVICEMAP);
  MUST_WORK(cuMemHostGetDevicePointer, &open_there, open, 0);
  *open = 0;
  {
    const Streams streams{busy, CU_STREAM_NON_BLOCKING};
    const Streams own{1, CU_STREAM_NON_BLOCKING};
    for (CUstream stream : streams) {
      for (std::size_t i = 1; i <= 4; ++i) {
        CUdeviceptr address = 0;
        MUST_WORK(cuMemAllocAsync, &address, i * 64 * KiB, stream);
        MUST_WORK(cuMemsetD8Async, address, 1, 16, stream);
        if (i == 1) {
          MUST_WORK(cuStreamWaitValue32, stream, open_there, 1, CU_STREAM_WAIT_VALUE_GEQ);
        }
        MUST_WORK(cuMemFreeAsync, address, stream);
      }
    }
    std::vector<CUdeviceptr> kept;
    for (auto _ : state) {
      state.SetIterationTime(seconds_of([&] {
        CUdeviceptr address = 0;
        MUST_WORK(cuMemAllocAsync, &address, 70000 + kept.size() * 512, *own.begin());
        kept.push_back(address);
        for (CUstream stream : streams) allocate_and_free(4 * KiB, stream);
      }));
    }
    *static_cast<volatile std::uint32_t*>(open) = 1;
    MUST_WORK(cuCtxSynchronize);
    for (CUdeviceptr address : kept) MUST_WORK(cuMemFreeAsync, address, *own.begin());
  }
  MUST_WORK(cuMemFreeHost, open);
}

BENCHMARK(PairAmong64Streams);
BENCHMARK(PairOnABlockingStream)->UseManualTime()->Iterations(50);
BENCHMARK(PairBehindABusyLegacyStream)->UseManualTime()->Iterations(50);
BENCHMARK(ShortStepBesideALongThread)->UseManualTime()->Iterations(60);
BENCHMARK(NewBlockAmong50BusyStreams)->UseManualTime()->Iterations(200);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
