// SPDX-License-Identifier: Apache-2.0
// Measures the cost of growing a buffer with cuMemAlloc, cuMemcpyDtoD and cuMemFree, as a plain
// program over the driver. Run natively and under `cuvmm run` with each VMM_RESIZE, it shows what
// resizing gains (tools/gpu_parts/resize.sh). Goals: from copy to free, within 10% of the mapping
// calls that it cannot do without, for 1 GiB at most 350 us, and for 16 GiB a sixth of the native
// time; a resizable buffer's growth within 5% of the driver's own calls.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/must_work.hpp"
#include "cuvmm/resizable.h"

namespace cuvmm::bench {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t GiB = std::size_t{1} << 30;

class Card {
 public:
  Card() {
    use_device();
    MUST_WORK(cuMemGetInfo, &free, &total);
  }
  // Simulated devices are small, so scale sizes down.
  std::size_t scaled(std::size_t size) const { return total >= 64 * GiB ? size : size / 16; }

  std::size_t free = 0;
  std::size_t total = 0;
};
Card& card() {
  static Card one;
  return one;
}

class Times {
 public:
  template <class Work>
  double measure(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    us_.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
    return us_.back();
  }
  double median() {
    const auto middle = us_.begin() + static_cast<std::ptrdiff_t>(us_.size() / 2);
    std::nth_element(us_.begin(), middle, us_.end());
    return *middle;
  }

 private:
  std::vector<double> us_;
};

std::uint64_t elided() {
  cuvmm_resize_info info{};
  return cuvmm_get_resize_info(&info, nullptr) == CUVMM_OK ? info.elided_copies : 0;
}

CUdeviceptr allocate(std::size_t size) {
  CUdeviceptr address = 0;
  MUST_WORK(cuMemAlloc, &address, size);
  return address;
}

void write(CUdeviceptr address, std::uint32_t word) {
  MUST_WORK(cuMemcpyHtoD, address, &word, sizeof word);
}
void must_hold(CUdeviceptr address, std::uint32_t word) {
  std::uint32_t there = 0;
  MUST_WORK(cuMemcpyDtoH, &there, address, sizeof there);
  check(there == word ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "reading what was written");
}

// Whether chunks can be registered for RDMA, as cudaMalloc's memory can, and therefore cuvmm's. The
// driver takes longer to map such chunks.
bool takes_rdma() {
  int supported = 0;
  MUST_WORK(cuDeviceGetAttribute, &supported,
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0);
  return supported != 0;
}

// A chunk like cuvmm's, mapped with the driver's own calls.
struct Chunk {
  enum class Export { No, Yes };
  Chunk(std::size_t of, Export exportable) : size(of) {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    if (exportable == Export::Yes) {
      made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    made.allocFlags.gpuDirectRDMACapable = takes_rdma() ? 1 : 0;
    MUST_WORK(cuMemCreate, &handle, size, &made, 0);
  }
  ~Chunk() { MUST_WORK(cuMemRelease, handle); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  void map(CUdeviceptr at) const { MUST_WORK(cuMemMap, at, size, 0, handle, 0); }
  void unmap(CUdeviceptr at) const { MUST_WORK(cuMemUnmap, at, size); }

  const std::size_t size;
  CUmemGenericAllocationHandle handle = 0;
};

void allow(CUdeviceptr at, std::size_t size) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST_WORK(cuMemSetAccess, at, size, &access, 1);
}

CUdeviceptr reserve(std::size_t size, std::size_t alignment = 0) {
  CUdeviceptr address = 0;
  MUST_WORK(cuMemAddressReserve, &address, size, alignment, 0, 0);
  return address;
}

// The calls that every elided copy needs: the free's wait, unmapping the new block's first chunk,
// mapping the old block's chunk in its place, and unmapping that chunk where it was.
class BareSequence {
 public:
  explicit BareSequence(std::size_t size) : size_(size), at_(reserve(2 * size)) {}

  // Holds its chunks for the turn only, so that a card need not have room for both sides at once.
  double turn(Times& times) const {
    const Chunk old{size_, Chunk::Export::Yes};
    const Chunk fresh{size_, Chunk::Export::Yes};
    old.map(at_);
    fresh.map(at_ + size_);
    allow(at_, 2 * size_);
    MUST_WORK(cuMemsetD8, at_, 1, 64);
    const double us = times.measure([&] {
      MUST_WORK(cuCtxSynchronize);
      fresh.unmap(at_ + size_);
      old.map(at_ + size_);
      allow(at_ + size_, size_);
      old.unmap(at_);
    });
    old.unmap(at_ + size_);
    return us;
  }

 private:
  const std::size_t size_;
  const CUdeviceptr at_;
};

// Doubles a buffer up to 16 GiB: allocations, copies and frees, each for the first time. It is the
// first benchmark: it would otherwise also pay for giving back what the others have freed.
void GrowTo16GiB(benchmark::State& state) {
  const std::size_t largest = card().scaled(16 * GiB);
  Times times;
  const std::uint64_t before = elided();
  for ([[maybe_unused]] auto _ : state) {
    CUdeviceptr buffer = allocate(largest / 16);
    write(buffer, 9);
    double us = 0;
    for (std::size_t size = largest / 16; size < largest; size *= 2) {
      us += times.measure([&] {
        const CUdeviceptr larger = allocate(2 * size);
        MUST_WORK(cuMemcpyDtoD, larger, buffer, size);
        MUST_WORK(cuMemFree, buffer);
        buffer = larger;
      });
    }
    must_hold(buffer, 9);
    MUST_WORK(cuMemFree, buffer);
    state.SetIterationTime(us / 1e6);
  }
  state.counters["elided"] = static_cast<double>(elided() - before);
}
BENCHMARK(GrowTo16GiB)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);

// Grows a resizable buffer from 1 to 2 GiB, and maps the same chunks directly; both have their
// chunks at hand. Which one maps first alternates, and within that, which one unmaps first, since
// the time of a driver call depends on the call before. Between unmapping and mapping, both wait,
// as shrinking does.
void ResizeInPlace(benchmark::State& state) {
  const std::size_t size = card().scaled(GiB);
  const std::size_t piece = std::min(size, 256 * MiB);
  // Aligned like a resizable buffer: an additional translation table on one side would cost 16 us.
  const CUdeviceptr before = reserve(2 * size, 512 * MiB);
  const CUdeviceptr at = before + size;
  std::vector<std::unique_ptr<Chunk>> chunks;
  std::vector<std::unique_ptr<Chunk>> chunks_before;
  for (std::size_t offset = 0; offset < size; offset += piece) {
    chunks.push_back(std::make_unique<Chunk>(piece, Chunk::Export::No));
    chunks_before.push_back(std::make_unique<Chunk>(piece, Chunk::Export::No));
    chunks_before.back()->map(before + offset);
  }
  allow(before, size);
  const auto need = [](cuvmm_status status, const char* what) {
    check(status == CUVMM_OK ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, what);
  };
  std::uint64_t buffer = 0;
  need(cuvmm_reserve_resizable(0, 2 * size, &buffer, nullptr), "cuvmm_reserve_resizable");
  for (const std::size_t next : {size, 2 * size, size}) {
    need(cuvmm_resize(buffer, next, nullptr), "cuvmm_resize");
  }
  Times direct;
  Times ours;
  const auto map_directly = [&] {
    direct.measure([&] {
      for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->map(at + i * piece);
      allow(at, size);
    });
  };
  const auto grow = [&] {
    return ours.measure([&] { need(cuvmm_resize(buffer, 2 * size, nullptr), "cuvmm_resize"); });
  };
  const auto unmap_directly = [&] {
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->unmap(at + i * piece);
  };
  const auto shrink = [&] { need(cuvmm_resize(buffer, size, nullptr), "cuvmm_resize"); };
  unsigned turn = 0;
  for ([[maybe_unused]] auto _ : state) {
    const bool we_grow_first = turn % 2 == 1;
    const bool we_shrink_first = turn / 2 % 2 == 1;
    ++turn;
    if (!we_grow_first) map_directly();
    state.SetIterationTime(grow() / 1e6);
    if (we_grow_first) map_directly();
    if (!we_shrink_first) unmap_directly();
    shrink();
    if (we_shrink_first) unmap_directly();
    MUST_WORK(cuCtxSynchronize);
  }
  need(cuvmm_release_resizable(buffer, nullptr), "cuvmm_release_resizable");
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks_before[i]->unmap(before + i * piece);
  MUST_WORK(cuMemAddressFree, before, 2 * size);
  state.counters["median_us"] = ours.median();
  state.counters["direct_us"] = direct.median();
  state.counters["ratio"] = ours.median() / direct.median();
}
BENCHMARK(ResizeInPlace)->UseManualTime()->Iterations(101)->Unit(benchmark::kMicrosecond);

// The time from the copy to the free when a block doubles.
void GrowFromCopyToFree(benchmark::State& state) {
  const std::size_t size = card().scaled(static_cast<std::size_t>(state.range(0)) * MiB);
  const BareSequence bare{size};
  Times bare_times;
  Times times;
  const std::uint64_t before = elided();
  for ([[maybe_unused]] auto _ : state) {
    bare.turn(bare_times);
    const CUdeviceptr old = allocate(size);
    write(old, 7);
    write(old + size - 4, 8);
    const CUdeviceptr larger = allocate(2 * size);
    state.SetIterationTime(times.measure([&] {
      MUST_WORK(cuMemcpyDtoD, larger, old, size);
      MUST_WORK(cuMemFree, old);
    }) / 1e6);
    must_hold(larger, 7);
    must_hold(larger + size - 4, 8);
    MUST_WORK(cuMemFree, larger);
  }
  state.counters["median_us"] = times.median();
  state.counters["bare_us"] = bare_times.median();
  state.counters["over_bare"] = times.median() / bare_times.median();
  state.counters["elided"] = static_cast<double>(elided() - before);
}
BENCHMARK(GrowFromCopyToFree)
    ->ArgName("MiB")
    ->Arg(1024)
    ->Arg(16384)
    ->UseManualTime()
    ->Iterations(31)
    ->Unit(benchmark::kMicrosecond);

// Natively, this takes 1.5 times the card's memory.
void GrowFrom60To90Percent(benchmark::State& state) {
  const std::size_t percent = card().free / 100 / (2 * MiB) * (2 * MiB);
  double granted = 0;
  for ([[maybe_unused]] auto _ : state) {
    const CUdeviceptr old = allocate(60 * percent);
    write(old, 5);
    write(old + 60 * percent - 4, 6);
    CUdeviceptr larger = 0;
    const CUresult answer = CALL(cuMemAlloc)(&larger, 90 * percent);
    if (answer == CUDA_SUCCESS) {
      MUST_WORK(cuMemcpyDtoD, larger, old, 60 * percent);
      MUST_WORK(cuMemFree, old);
      must_hold(larger, 5);
      must_hold(larger + 60 * percent - 4, 6);
      MUST_WORK(cuMemFree, larger);
      granted = 1;
    } else {
      check(answer == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : answer, "cuMemAlloc");
      MUST_WORK(cuMemFree, old);
    }
  }
  state.counters["granted"] = granted;
}
BENCHMARK(GrowFrom60To90Percent)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
