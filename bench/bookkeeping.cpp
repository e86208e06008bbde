// SPDX-License-Identifier: Apache-2.0
// Measures the host memory of our bookkeeping, as the heap counts it, with a million live
// allocations on a hundred thousand chunks. Goals: 128 bytes per allocation, 256 per chunk, and 320
// more per granule of addresses in stripes. Fails if it is more, so it is a test as well.
#include <malloc.h>

#include <cstdio>

#include "alloc/allocation_map.hpp"
#include "alloc/arena/arena.hpp"
#include "alloc/windows/windows.hpp"
#include "bench/bench_driver.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t chunks = 100'000;
constexpr Size memory = 256 * GiB;
// Allowed bytes per live allocation, per chunk, and per granule of addresses in stripes.
struct Goal {
  double a_block;
  double a_chunk;
  double more_a_granule;
};
constexpr Goal goal{128, 256, 320};

bool keeps_to_its_goals = true;

class NothingRuns final : public StreamOrder {
 public:
  bool is_before(const FreeTicket&, StreamId) const override { return true; }
  bool is_done(const FreeTicket&) const override { return true; }
  void look(StreamId) override {}
  bool wait(const FreeTicket&, std::uint64_t) override { return true; }
};

double heap() {
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 now = ::mallinfo2();
#else
  const struct mallinfo now = ::mallinfo();
#endif
  return static_cast<double>(now.uordblks) + static_cast<double>(now.hblkhd);
}

// Everything behind a program's memory of one kind.
struct Ground {
  Ground() : store(silent_driver()) {
    need_ok(store.serve(Location::device(0), std::make_shared<LocalBudget>(memory)), "a store");
  }
  void add(Allocation& block) {
    block.hold({.asked = block.granted(),
                .buffer_id = 1,
                .owner = {},
                .served = Served::Window,
                .device = 0});
    map.add(block);
  }

  NothingRuns order;
  ChunkStore store;
  AllocationMap map;
};

struct ArenaGround : Ground {
  explicit ArenaGround(Size, bool spreads = false) {
    ArenaSettings settings;
    settings.reserve = 2 * memory;
    settings.access = AccessSet::of(0);
    settings.device_memory = memory;
    settings.chunks.largest = usual_granule;
    settings.spreads = spreads;
    arena = need_ok(Arena::create(silent_driver(), store, order, settings), "an arena");
  }
  void block(Size size) {
    Allocation& block = *need_ok(arena->allocate(size, 1), "allocate");
    first = std::min(first, block.address());
    last = std::max(last, block.address());
    add(block);
  }
  std::size_t granules() const { return (last - first) / usual_granule + 1; }
  std::size_t held() const { return arena->counters().mapped_chunks; }
  std::unique_ptr<Arena> arena;
  CUdeviceptr first = ~CUdeviceptr{0};
  CUdeviceptr last = 0;
};

struct WindowGround : Ground {
  explicit WindowGround(Size) {
    windows = need_ok(Windows::create(silent_driver(), store, order,
                                      {.device_memory = memory, .access = AccessSet::of(0)}),
                      "windows");
  }
  void block(Size size) { add(*need_ok(windows->allocate(size), "allocate")); }
  std::size_t held() const { return windows->counters().physical_bytes / usual_granule; }
  std::unique_ptr<Windows> windows;
};

struct Held {
  double blocks = 0;
  double chunks = 0;
  double bytes = 0;
};

template <class Of>
Held hold(std::size_t blocks, Size size) {
  const double before = heap();
  const auto ground = std::make_unique<Of>(size);
  for (std::size_t i = 0; i < blocks; ++i) ground->block(size);
  return {static_cast<double>(blocks), static_cast<double>(ground->held()), heap() - before};
}

template <class Of>
void count(benchmark::State& state, const Held& few) {
  for ([[maybe_unused]] auto _ : state) {
    const double a_chunk = few.bytes / few.chunks;
    const Held all = hold<Of>(1'000'000, usual_granule / 10 / 512 * 512);
    const double a_block = (all.bytes - all.chunks * a_chunk) / all.blocks;
    state.counters["blocks"] = all.blocks;
    state.counters["chunks"] = all.chunks;
    state.counters["bytes_a_block"] = a_block;
    state.counters["bytes_a_chunk"] = a_chunk;
    keeps_to_its_goals &= a_block <= goal.a_block && a_chunk <= goal.a_chunk;
  }
}

// Holds blocks with one chunk each. Subtracts the blocks' own bytes, so that the chunks' bytes
// remain.
template <class Of>
Held one_a_chunk(Size size, std::size_t bytes_a_block) {
  Held few = hold<Of>(chunks, size);
  few.bytes -= few.blocks * static_cast<double>(bytes_a_block);
  return few;
}

constexpr std::size_t place_in_the_map = sizeof(void*);
constexpr std::size_t place_in_the_chunk = sizeof(void*);

void StreamOrdered(benchmark::State& state) {
  count<ArenaGround>(state,
                     one_a_chunk<ArenaGround>(usual_granule, sizeof(Block) + place_in_the_map));
}
void Blocking(benchmark::State& state) {
  count<WindowGround>(state, one_a_chunk<WindowGround>(
                                 usual_granule / 4 * 3,
                                 sizeof(WindowBlock) + place_in_the_map + place_in_the_chunk));
}

// What a granule of addresses takes more if small blocks are laid out in stripes.
void Striped(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    constexpr std::size_t blocks = 1'000'000;
    constexpr Size size = usual_granule / 32;
    const auto held = [&](bool spreads, std::size_t& granules) {
      const double before = heap();
      ArenaGround ground{0, spreads};
      for (std::size_t i = 0; i < blocks; ++i) ground.block(size);
      granules = ground.granules();
      return heap() - before;
    };
    std::size_t packed_granules = 0;
    std::size_t granules = 0;
    const double packed = held(false, packed_granules);
    const double more = (held(true, granules) - packed) / static_cast<double>(granules);
    state.counters["granules"] = static_cast<double>(granules);
    state.counters["granules_if_packed"] = static_cast<double>(packed_granules);
    state.counters["bytes_more_a_granule"] = more;
    keeps_to_its_goals &= more <= goal.more_a_granule;
  }
}
BENCHMARK(Striped)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(StreamOrdered)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(Blocking)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  const int status = cuvmm::bench::run(argc, argv);
  if (status == 0 && !cuvmm::bench::keeps_to_its_goals) {
    std::fprintf(stderr, "our books take more than they may\n");
    return 1;
  }
  return status;
}
