// SPDX-License-Identifier: Apache-2.0
// Benchmarks an arena's allocation and free over a driver that does nothing. Goals: a warm pair of
// a size just freed takes at most 0.25 us on one thread and twice that on eight streams' threads;
// with a million live blocks over a hundred thousand chunks, at most twice that, and at most 1 us
// in random order.
#include <atomic>
#include <random>

#include "alloc/arena/arena.hpp"
#include "bench/bench_driver.hpp"

namespace cuvmm::bench {
namespace {

// Streams whose work is always done.
class QuickOrder final : public StreamOrder {
 public:
  bool is_before(const FreeTicket& freed, StreamId asker) const override {
    return freed.stream == asker;
  }
  bool is_done(const FreeTicket&) const override { return true; }
  void look(StreamId) override {}
  bool wait(const FreeTicket&, std::uint64_t) override { return true; }
};

struct Ground {
  explicit Ground(Size device_memory = 256 * GiB, Size largest_chunk = 64 * MiB)
      : store(silent_driver()) {
    need_ok(store.serve(Location::device(0), std::make_shared<LocalBudget>(device_memory)),
            "serve device 0");
    ArenaSettings settings;
    settings.reserve = 8 * device_memory;
    settings.access = AccessSet::of(0);
    settings.device_memory = device_memory;
    settings.chunks.largest = largest_chunk;
    arena = need_ok(Arena::create(silent_driver(), store, order, settings), "make an arena");
  }
  Block& allocate(Size size, StreamId stream = 1) {
    return *need_ok(arena->allocate(size, stream), "allocate");
  }
  void free(Block& block, StreamId stream = 1) { arena->free(block, {stream, ++tick}); }

  ChunkStore store;
  QuickOrder order;
  std::unique_ptr<Arena> arena;
  std::uint64_t tick = 0;
};

void WarmPair(benchmark::State& state) {
  Ground ground;
  for ([[maybe_unused]] auto _ : state) ground.free(ground.allocate(1 * MiB));
}
BENCHMARK(WarmPair);

// Without a stream, nothing is cached: the range is merged and split each time.
void PairWithoutAStream(benchmark::State& state) {
  Ground ground;
  Block& held = ground.allocate(1 * MiB, no_stream);
  for ([[maybe_unused]] auto _ : state) {
    ground.arena->free(ground.allocate(1 * MiB, no_stream), {});
  }
  ground.arena->free(held, {});
}
BENCHMARK(PairWithoutAStream);

Ground* shared_ground = nullptr;

void WarmPairOnItsOwnStream(benchmark::State& state) {
  if (state.thread_index() == 0) shared_ground = new Ground;
  const auto stream = static_cast<StreamId>(1 + state.thread_index());
  std::uint64_t tick = 0;
  const std::uint64_t began = now_ns();
  for ([[maybe_unused]] auto _ : state) {
    Block& block = shared_ground->allocate(1 * MiB, stream);
    shared_ground->arena->free(block, {stream, ++tick});
  }
  // The time per pair that a thread waits; the time above is divided among the threads.
  state.counters["ns_a_pair"] = benchmark::Counter(
      static_cast<double>(now_ns() - began) / static_cast<double>(state.iterations()),
      benchmark::Counter::kAvgThreads);
  if (state.thread_index() == 0) {
    delete shared_ground;
    shared_ground = nullptr;
  }
}
BENCHMARK(WarmPairOnItsOwnStream)->Threads(1)->Threads(2)->Threads(8)->UseRealTime();

constexpr std::size_t million = 1'000'000;

// A million blocks of about 200 KiB, whose memory is a hundred thousand chunks.
struct Crowd {
  Crowd() : ground(256 * GiB, usual_granule) {
    blocks.reserve(million);
    for (std::size_t i = 0; i < million; ++i) blocks.push_back(&ground.allocate(some_size()));
  }
  Size some_size() { return 200 * KiB + 512 * (random() % 64) - 16 * KiB; }

  std::minstd_rand random{1};
  Ground ground;
  std::vector<Block*> blocks;
};
Crowd& crowd() {
  static Crowd* one = new Crowd;
  return *one;
}
void tell(benchmark::State& state, const Crowd& crowd) {
  const ArenaCounters counters = crowd.ground.arena->counters();
  state.counters["chunks"] = static_cast<double>(counters.mapped_chunks);
  state.counters["blocks"] = static_cast<double>(counters.blocks);
}

void WarmPairAmongAMillion(benchmark::State& state) {
  Crowd& all = crowd();
  Block* block = all.blocks[million / 2];
  const Size size = block->granted();
  for ([[maybe_unused]] auto _ : state) {
    all.ground.free(*block);
    block = &all.ground.allocate(size);
  }
  all.blocks[million / 2] = block;
  tell(state, all);
}
BENCHMARK(WarmPairAmongAMillion);

// Frees a random block and allocates one of a random size.
void RandomPairAmongAMillion(benchmark::State& state) {
  Crowd& all = crowd();
  for ([[maybe_unused]] auto _ : state) {
    Block*& block = all.blocks[all.random() % million];
    all.ground.free(*block);
    block = &all.ground.allocate(all.some_size());
  }
  all.ground.arena->check();
  tell(state, all);
}
BENCHMARK(RandomPairAmongAMillion)->Iterations(2'000'000);

// Frees a thousand blocks in random order, then allocates a thousand.
void RandomThousandAmongAMillion(benchmark::State& state) {
  Crowd& all = crowd();
  std::vector<std::size_t> chosen(1000);
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t& one : chosen) {
      do one = all.random() % million;
      while (all.blocks[one] == nullptr);
      all.ground.free(*all.blocks[one]);
      all.blocks[one] = nullptr;
    }
    for (const std::size_t one : chosen) all.blocks[one] = &all.ground.allocate(all.some_size());
  }
  state.SetItemsProcessed(state.iterations() * 1000);
  tell(state, all);
}
BENCHMARK(RandomThousandAmongAMillion)->Iterations(1000)->Unit(benchmark::kMicrosecond);

// Half of the chunks are free, each beside a live one. Allocates one block as large as all free
// memory.
void MoveAChunk(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  double moved = 0;
  Times times{Clock::Thread};
  for ([[maybe_unused]] auto _ : state) {
    Ground ground{2 * count * usual_granule, usual_granule};
    std::vector<Block*> blocks;
    for (std::size_t i = 0; i < 2 * count; ++i) blocks.push_back(&ground.allocate(usual_granule));
    for (std::size_t i = 0; i < 2 * count; i += 2) ground.arena->free(*blocks[i], {});
    state.SetIterationTime(times.measure([&] { ground.allocate(count * usual_granule); }));
    moved = static_cast<double>(ground.arena->counters().moved_chunks);
  }
  state.counters["us_a_move"] = times.median_microseconds() / moved;
}
BENCHMARK(MoveAChunk)
    ->Arg(100)
    ->Arg(10'000)
    ->UseManualTime()
    ->Iterations(11)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  return cuvmm::bench::run(argc, argv);
}
