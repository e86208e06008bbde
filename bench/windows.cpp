// SPDX-License-Identifier: Apache-2.0
// Benchmarks blocking memory through windows. Goals: a pair of allocation and free that finds a
// cached window takes at most 1 us, even with a million live blocks; a comb of small blocks gives
// back 95% of the freed memory. Compaction's own time is the time over a driver that does nothing;
// on a card, with CUVMM_TEST_DRIVER=libcuda.so.1, the total is measured.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "alloc/windows/windows.hpp"
#include "bench/bench_driver.hpp"

namespace cuvmm::bench {
namespace {

// Reports all work as done, since these benchmarks give the device none.
class NothingRuns final : public StreamOrder, public Quiescence {
 public:
  bool is_before(const FreeTicket&, StreamId) const override { return true; }
  bool is_done(const FreeTicket&) const override { return true; }
  void look(StreamId) override {}
  bool wait(const FreeTicket&, std::uint64_t) override { return true; }
  bool begin(std::uint64_t) override { return true; }
  void end() override {}
  CopyBy copy_by() override { return {stream_, 0}; }

 private:
  std::shared_ptr<CopyStream> stream_ = std::make_shared<CopyStream>(driver());
};

struct Ground {
  Ground(const Driver& with, Size memory)
      : budget(std::make_shared<LocalBudget>(memory)), store(with) {
    need_ok(store.serve(Location::device(0), budget), "serve device 0");
    windows = need_ok(
        Windows::create(
            with, store, nothing_runs,
            {.device_memory = memory, .access = AccessSet::of(0), .quiescence = &nothing_runs}),
        "set up windows");
  }
  WindowBlock& block(Size size) { return *need_ok(windows->allocate(size), "allocate"); }
  std::vector<WindowBlock*> fill_with(Size size) {
    std::vector<WindowBlock*> blocks;
    for (auto block = windows->allocate(size); block.ok(); block = windows->allocate(size)) {
      blocks.push_back(*block);
    }
    return blocks;
  }

  NothingRuns nothing_runs;
  std::shared_ptr<LocalBudget> budget;
  ChunkStore store;
  std::unique_ptr<Windows> windows;
};

void CachedAllocAndFree(benchmark::State& state) {
  const Size size = static_cast<Size>(state.range(0)) * KiB;
  Ground ground{silent_driver(), 1 * GiB};
  for ([[maybe_unused]] auto _ : state) {
    WindowBlock& block = ground.block(size);
    ground.windows->free(block);
  }
}
BENCHMARK(CachedAllocAndFree)->ArgName("KiB")->Arg(64)->Arg(1024)->Arg(3072)->Arg(65536);

// Picks a random freed block, so that no record is in the processor's caches.
void CachedAllocAndFreeAmongAMillion(benchmark::State& state) {
  constexpr std::size_t count = 1'000'000;
  Ground ground{silent_driver(), 128 * GiB};
  std::vector<WindowBlock*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(&ground.block(64 * KiB));
  std::minstd_rand random{1};
  const bool any = state.range(0) != 0;
  for ([[maybe_unused]] auto _ : state) {
    WindowBlock*& chosen = any ? blocks[random() % count] : blocks.back();
    ground.windows->free(*chosen);
    chosen = &ground.block(64 * KiB);
  }
}
BENCHMARK(CachedAllocAndFreeAmongAMillion)->ArgName("any")->Arg(0)->Arg(1);

// Our own time for a new block, without the driver's time to map it.
void NewSmallBlocks(benchmark::State& state) {
  const Size size = static_cast<Size>(state.range(0)) * KiB;
  Times times;
  std::size_t count = 0;
  for ([[maybe_unused]] auto _ : state) {
    Ground ground{silent_driver(), 4 * GiB};
    const double seconds = times.measure([&] { count = ground.fill_with(size).size(); });
    state.SetIterationTime(seconds);
  }
  state.counters["own_us_a_block"] = times.median_microseconds() / static_cast<double>(count);
}
BENCHMARK(NewSmallBlocks)
    ->ArgName("KiB")
    ->Arg(64)
    ->Arg(512)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

// Memory full of blocks, every second of which is freed.
struct CombGround : Ground {
  CombGround(const Driver& with, Size memory, Size size) : Ground(with, memory) {
    const auto all = fill_with(size);
    blocks = all.size();
    for (std::size_t i = 1; i < all.size(); i += 2) {
      freed += all[i]->granted();
      freed_whole += round_down(all[i]->granted(), usual_granule);
      windows->free(*all[i]);
    }
  }
  std::size_t blocks = 0;
  Size freed = 0;
  Size freed_whole = 0;  // of that, whole granules
};

// The most that compaction can give back, measured with a separate comb.
Size compactable(const Driver& with, Size memory, Size size) {
  CombGround comb{with, memory, size};
  const Size without_moving = comb.windows->trim(0);
  const Size all =
      need_ok(comb.windows->compact(memory, {.copy = comb.nothing_runs.copy_by()}), "compact");
  return std::max(without_moving + all, comb.freed_whole) - comb.freed_whole;
}

// How much memory comes back as one block after every second of the blocks that fill it is freed.
void comb(benchmark::State& state, const Driver& with, Size memory, Size size) {
  Times times;
  double share = 0;
  double moved = 0;
  double moved_bytes = 0;
  std::size_t fit = 0;
  for ([[maybe_unused]] auto _ : state) {
    const Size by_moving = compactable(with, memory, size);
    CombGround comb{with, memory, size};
    fit = comb.blocks;
    const Size back = comb.freed_whole + by_moving;
    const double seconds = times.measure([&] { comb.block(back); });
    state.SetIterationTime(seconds);
    share = static_cast<double>(back) / static_cast<double>(comb.freed);
    const WindowCounters counters = comb.windows->counters();
    moved = static_cast<double>(counters.compacted_blocks);
    moved_bytes = static_cast<double>(counters.compacted_bytes) / MiB;
    need(!comb.windows->violation(), "the books hold");
  }
  state.counters["blocks"] = static_cast<double>(fit);
  state.counters["share_back"] = share;
  state.counters["moved_blocks"] = moved;
  state.counters["moved_MiB"] = moved_bytes;
  state.counters["us_a_moved_block"] = times.median_microseconds() / std::max(moved, 1.0);
}

// Our own time for 8 GiB and for a whole card, over a driver that does nothing, not even copies.
void CombOverASilentDriver(benchmark::State& state) {
  static const Driver* const still = [] {
    auto* driver = new Driver{silent_driver()};
    driver->cuMemcpyDtoDAsync = [](CUdeviceptr, CUdeviceptr, std::size_t, CUstream) {
      return CUDA_SUCCESS;
    };
    return driver;
  }();
  comb(state, *still, static_cast<Size>(state.range(1)) * GiB,
       static_cast<Size>(state.range(0)) * KiB);
}
BENCHMARK(CombOverASilentDriver)
    ->ArgNames({"KiB", "GiB"})
    ->Args({64, 8})
    ->Args({256, 8})
    ->Args({512, 8})
    ->Args({1024, 8})
    ->Args({64, 64})
    ->Args({512, 128})
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

// 8 GiB on a card, like the comb of docs/internals/driver_facts.md; simulated, as much as a process
// can map.
void Comb(benchmark::State& state) {
  comb(state, driver(), (simulated() ? 3 : 8) * GiB, static_cast<Size>(state.range(0)) * KiB);
}
BENCHMARK(Comb)
    ->ArgName("KiB")
    ->Arg(64)
    ->Arg(100)
    ->Arg(256)
    ->Arg(512)
    ->Arg(1024)
    ->Arg(3072)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  return cuvmm::bench::run(argc, argv);
}
