// SPDX-License-Identifier: Apache-2.0
// Random allocations and frees on several streams, over a driver that fails now and then, against a
// model that knows what is live, what pending work may still use, and how much memory is available.
#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "alloc_arena_world.hpp"
#include "support/faulty_driver.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Size limit = 40;  // granules
constexpr StreamId streams = 4;

class ArenaRandom : public VmmTest {
 protected:
  // A range of memory and the word written at both its ends.
  struct Marked {
    CUdeviceptr begin;
    CUdeviceptr end;
    std::uint32_t word;
  };
  struct Live : Marked {
    Block* block;
    Arena* arena;
  };
  // Freed, but work may still read and write it.
  struct Pending : Marked {
    FreeTicket since;
  };

  void start(Grow grow, Size largest_chunk, Size spill = 0, bool compacts = false) {
    random_.seed(seed());
    chunks_are_granules_ = largest_chunk == usual_granule;
    faulty_.emplace(driver());
    world_.emplace(*faulty_, ArenaWorld::Given{.limit_granules = limit,
                                               .reserve_granules = limit * 8,
                                               .grow = grow,
                                               .largest_chunk = largest_chunk,
                                               .spill_granules = spill,
                                               .compacts = compacts});
    compacts_ = compacts;
    other_ = world_->make_arena();
  }
  void TearDown() override {
    other_.reset();
    world_.reset();
    faulty_.reset();
    VmmTest::TearDown();
  }

  Size below(Size bound) { return random_() % bound; }
  StreamId some_stream() { return static_cast<StreamId>(1 + below(streams)); }
  Size some_size() {
    switch (below(8)) {
      case 0:
      case 1:
        return 1 + below(64 * KiB);
      case 2:
      case 3:
        return 1 + below(2 * MiB);
      case 4:
        return world_->granules(1 + below(4));
      case 5:
        return 512 * (1 + below(4));
      case 6:
        return 1 + below(world_->granules(limit / 2));
      default:
        return 1 + below(16 * MiB);
    }
  }

  void step() {
    switch (below(compacts_ ? 20 : 18)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        return allocate(world_->arena(), below(12) == 0 ? no_stream : some_stream());
      case 6:
        return allocate(*other_, no_stream);
      case 7:
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
        return free_some();
      case 14:
        return world_->order.finish(some_stream());
      case 15:
        return world_->order.order(some_stream(), some_stream());
      case 16:
        waits_succeed_ = below(3) != 0;
        return world_->order.let_waits_succeed(waits_succeed_);
      case 17:
        world_->arena().trim(world_->granules(below(limit)));
        if (below(2) == 0) world_->store.trim(world_->here, 0);
        return;
      default:
        below(16) == 0 ? evict() : compact();
    }
  }

  void compact() {
    const bool fails = below(4) == 0;
    if (fails) faulty_->fail_call(1 + below(20), CUDA_ERROR_UNKNOWN);
    const auto freed = world_->compactor.compact(world_->granules(1 + below(limit / 2)));
    const bool failed = faulty_->faults() != 0;
    faulty_->stop_failing();
    ASSERT_TRUE(freed.ok() || failed) << freed.error().text();
    if (freed.ok() && *freed != 0) ++compacted_;
  }

  // Everything leaves and comes back, in other chunks.
  void evict() {
    EvictionSet evicted{.wants = [](const Chunk& chunk) { return chunk.location().is_device(); }};
    world_->arena().eviction().begin_eviction(evicted);
    std::vector<std::vector<std::uint8_t>> contents;
    for (EvictedChunk& one : evicted.chunks) {
      contents.emplace_back(one.size);
      ASSERT_EQ(driver().cuMemcpyDtoH(contents.back().data(), one.address, one.size), CUDA_SUCCESS);
      ASSERT_OK(world_->arena().eviction().take_out(one));
    }
    for (std::size_t i = 0; i < evicted.chunks.size(); ++i) {
      EvictedChunk& one = evicted.chunks[i];
      one.chunk = GIVEN_VALUE(world_->store.take({one.size, one.home, one.exportable}));
      ASSERT_OK(world_->arena().eviction().put_back({&one, 1}));
      ASSERT_EQ(driver().cuMemcpyHtoD(one.address, contents[i].data(), one.size), CUDA_SUCCESS);
    }
    world_->arena().eviction().end_eviction();
  }

  void allocate(Arena& arena, StreamId stream) {
    const Size asked = some_size();
    const bool fails = below(6) == 0;
    if (fails) {
      faulty_->fail_call(1 + below(8),
                         below(2) == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    }
    const bool is_to_be_had = must_succeed(arena, asked);
    const auto had = arena.allocate(asked, stream);
    const bool failed = faulty_->faults() != 0;
    faulty_->stop_failing();
    if (!had.ok()) {
      ASSERT_TRUE(failed || !is_to_be_had) << had.error().text() << ", asked were " << asked;
      if (!failed) {
        ASSERT_EQ(had.error().kind, ErrorKind::OutOfMemory) << had.error().text();
        ASSERT_LT(had.error().available, asked) << had.error().text();
      }
      return;
    }
    Block& block = **had;
    ASSERT_GE(block.granted(), asked);
    ASSERT_EQ(block.granted(), round_up(asked, 512));
    take_over(block, stream);
    const auto word = static_cast<std::uint32_t>(random_());
    for_each_mark({block.address(), block.end(), word}, &write_word);
    live_.push_back({{block.address(), block.end(), word}, &block, &arena});
  }

  // No live block overlaps it, and pending work there is ordered before the stream's work.
  void take_over(const Block& block, StreamId stream) {
    for (const Live& live : live_) {
      ASSERT_TRUE(live.end <= block.address() || block.end() <= live.begin) << "memory of a block";
    }
    for (const Pending& pending : pending_) {
      if (pending.end <= block.address() || block.end() <= pending.begin) continue;
      ASSERT_TRUE(world_->order.is_before(pending.since, stream) ||
                  world_->order.is_over(pending.since))
          << "work of stream " << pending.since.stream << " may still use it";
    }
    std::erase_if(pending_, [&](const Pending& pending) {
      return pending.begin < block.end() && block.address() < pending.end;
    });
  }

  // Whether whole granules without live blocks are enough for it, and waits succeed.
  bool must_succeed(const Arena& arena, Size asked) {
    if (!chunks_are_granules_ || &arena != &world_->arena() || !waits_succeed_) return false;
    std::set<CUdeviceptr> touched;
    for (const Live& live : live_) {
      for (CUdeviceptr at = round_down(live.begin, world_->granule); at < live.end;
           at += world_->granule) {
        touched.insert(at);
      }
    }
    return round_up(asked, world_->granule) + world_->granules(touched.size()) <=
           world_->granules(limit);
  }

  void free_some() {
    if (live_.empty()) return;
    std::swap(live_[below(live_.size())], live_.back());
    const Live freed = live_.back();
    live_.pop_back();
    if (freed.arena == &*other_ || below(4) == 0) return freed.arena->free(*freed.block, {});
    const StreamId stream = below(4) == 0 ? some_stream() : freed.block->stream;
    if (stream == no_stream) return freed.arena->free(*freed.block, {});
    const FreeTicket since = world_->order.freed_on(stream);
    pending_.push_back({freed, since});
    freed.arena->free(*freed.block, since);
  }

  // At the ends, and in between.
  template <class Visit>
  static void for_each_mark(const Marked& marked, Visit visit) {
    for (CUdeviceptr at = marked.begin; at + 4 < marked.end; at += 384 * KiB) {
      visit(at, marked.word);
    }
    visit(marked.end - 4, marked.word);
  }

  void expect_marked(const Marked& marked, const char* what) {
    for_each_mark(marked, [&](CUdeviceptr at, std::uint32_t word) {
      ASSERT_EQ(read_word(at), word) << what;
    });
  }

  void compare(bool all) {
    std::erase_if(pending_, [&](const Pending& one) { return world_->order.is_over(one.since); });
    if (all) {
      for (const Live& live : live_) expect_marked(live, "a live block");
      for (const Pending& one : pending_) expect_marked(one, "what work may still use");
    } else {
      if (!live_.empty()) expect_marked(live_[below(live_.size())], "a live block");
      if (!pending_.empty()) {
        expect_marked(pending_[below(pending_.size())], "what work may still use");
      }
    }
    ASSERT_LE(world_->budget->committed_bytes(), world_->granules(limit));
    ASSERT_LE(world_->spill_budget->committed_bytes(), world_->spill_budget->limit());
    if (world_->arena().counters().spilled != 0) ++spilled_;
  }

  void check() {
    ASSERT_EQ(world_->arena().violation().value_or("nothing"), "nothing");
    ASSERT_EQ(other_->violation().value_or("nothing"), "nothing");
    ASSERT_EQ(world_->store.violation().value_or("nothing"), "nothing");
    Size bytes = 0;
    for (const Live& live : live_) {
      if (live.arena == &world_->arena()) bytes += live.end - live.begin;
    }
    const ArenaCounters counters = world_->arena().counters();
    ASSERT_EQ(counters.live, bytes);
    ASSERT_EQ(counters.live + counters.cached + counters.free, counters.mapped);
    ASSERT_EQ(counters.spilled + other_->counters().spilled,
              world_->store.spilled().physical_in_use);
  }

  void run(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      ASSERT_NO_FATAL_FAILURE(step());
      ASSERT_NO_FATAL_FAILURE(compare(i % 64 == 0));
      if (i % 8 == 0) {
        ASSERT_NO_FATAL_FAILURE(check());
      }
    }
  }

  std::mt19937_64 random_;
  std::optional<FaultyDriver> faulty_;
  std::optional<ArenaWorld> world_;
  std::unique_ptr<Arena> other_;
  std::vector<Live> live_;
  std::vector<Pending> pending_;
  bool waits_succeed_ = true;
  bool compacts_ = false;
  int compacted_ = 0;
  int spilled_ = 0;  // steps after which memory was spilled
  bool chunks_are_granules_ = true;
};

TEST_F(ArenaRandom, SmallChunks) {
  PRINT_SEED_ON_FAILURE();
  start(Grow::Loose, usual_granule);
  run(scaled(6000));
}

TEST_F(ArenaRandom, SmallChunksAndTight) {
  PRINT_SEED_ON_FAILURE();
  start(Grow::Tight, usual_granule);
  run(scaled(6000));
}

TEST_F(ArenaRandom, ChunksOfManySizes) {
  PRINT_SEED_ON_FAILURE();
  start(Grow::Loose, 16 * MiB);
  run(scaled(6000));
}

TEST_F(ArenaRandom, MovingLiveMemory) {
  PRINT_SEED_ON_FAILURE();
  start(Grow::Loose, usual_granule, 0, true);
  run(scaled(6000));
  EXPECT_GT(compacted_, 0);
}

TEST_F(ArenaRandom, MovingLiveMemoryInChunksOfManySizes) {
  PRINT_SEED_ON_FAILURE();
  start(Grow::Loose, 16 * MiB, 0, true);
  run(scaled(6000));
  EXPECT_GT(compacted_, 0);
}

TEST_F(ArenaRandom, MovingLiveMemoryAndSpilling) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  start(Grow::Tight, usual_granule, limit / 4, true);
  run(scaled(6000));
  EXPECT_GT(compacted_, 0);
  EXPECT_GT(spilled_, 0);
}

TEST_F(ArenaRandom, SpillingALittle) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  start(Grow::Loose, usual_granule, limit / 4);
  run(scaled(6000));
  EXPECT_GT(spilled_, 0);
}

TEST_F(ArenaRandom, SpillingALotOfManySizes) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  start(Grow::Tight, 16 * MiB, limit * 2);
  run(scaled(6000));
  EXPECT_GT(spilled_, 0);
}

}  // namespace
}  // namespace cuvmm::test
