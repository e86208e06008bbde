// SPDX-License-Identifier: Apache-2.0
// Many threads on one arena.
#include <atomic>
#include <optional>
#include <random>
#include <shared_mutex>
#include <thread>

#include "alloc_arena_world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class ArenaThreads : public ArenaTest {
 protected:
  static constexpr StreamId thread_count = 6;

  template <class Work>
  void run(Work work) {
    std::vector<std::thread> threads;
    for (StreamId stream = 1; stream <= thread_count; ++stream) {
      threads.emplace_back([=, this] { work(world(), stream); });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// A table marks each step of allocated memory: a thread that gets another's memory notices.
class Claims {
 public:
  explicit Claims(Size bytes) : steps_(bytes / 512) {}
  void claim(Size offset, Size size) {
    for (Size at = offset / 512; at < (offset + size) / 512; ++at) {
      EXPECT_EQ(steps_[at].exchange(1), 0) << "step " << at << " is somebody's";
    }
  }
  void give_up(Size offset, Size size) {
    for (Size at = offset / 512; at < (offset + size) / 512; ++at) steps_[at].store(0);
  }

 private:
  std::vector<std::atomic<char>> steps_;
};

void allocate_and_free(ArenaWorld& world, Claims& claims, StreamId stream) {
  std::mt19937_64 random{seed() * 100 + stream};
  std::vector<Block*> live;
  for (std::uint64_t i = 0; i < scaled(4000); ++i) {
    if (live.size() < 12 && random() % 2 == 0) {
      const Size size = random() % 4 == 0 ? 1 + random() % (6 * MiB) : 512 * (1 + random() % 600);
      const auto had = world.arena().allocate(size, stream);
      if (!had.ok()) continue;
      claims.claim(world.offset_of(**had), (*had)->granted());
      live.push_back(*had);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      Block& block = *live.back();
      live.pop_back();
      claims.give_up(world.offset_of(block), block.granted());
      if (random() % 3 == 0) {
        world.arena().free(block, {});
      } else {
        world.free(block, stream);
        if (random() % 16 == 0) world.order.finish(stream);
      }
    }
  }
  for (Block* block : live) {
    claims.give_up(world.offset_of(*block), block->granted());
    world.free(*block, stream);
  }
}

// Holds off the use of memory. Those who want to close it come first.
class UseGate {
 public:
  std::shared_lock<std::shared_mutex> pass() {
    while (closes_) std::this_thread::yield();
    return std::shared_lock{mutex_};
  }
  std::unique_lock<std::shared_mutex> close() {
    closes_ = true;
    std::unique_lock lock{mutex_};
    closes_ = false;
    return lock;
  }

 private:
  std::shared_mutex mutex_;
  std::atomic<bool> closes_{false};
};

// While live memory moves, only the use of memory is held off, not allocations and frees.
void use_while_it_moves(ArenaWorld& world, UseGate& gate, StreamId stream) {
  std::mt19937_64 random{seed() * 100 + stream};
  std::vector<std::pair<Block*, std::uint64_t>> live;
  const auto end_of = [&](std::size_t index) {
    std::swap(live[index], live.back());
    const auto [block, mark] = live.back();
    live.pop_back();
    {
      const auto passing = gate.pass();
      expect_pattern(block->address(), block->granted(), mark);
    }
    world.free_for_anyone(*block);
  };
  for (std::uint64_t i = 0; i < scaled(300); ++i) {
    if (live.size() < 24 && random() % 8 != 0) {
      const auto had = world.arena().allocate(64 * KiB * (1 + random() % 12), stream);
      if (!had.ok()) continue;
      const auto passing = gate.pass();
      live.emplace_back(*had, random());
      fill_pattern((*had)->address(), (*had)->granted(), live.back().second);
    } else if (!live.empty()) {
      end_of(random() % live.size());
    }
  }
  while (!live.empty()) end_of(0);
}

TEST_F(ArenaThreads, LiveMemoryMovesWhileOthersAllocate) {
  PRINT_SEED_ON_FAILURE();
  given(
      {.limit_granules = 100, .reserve_granules = 1000, .wait = Duration{1000}, .compacts = true});
  world().compactor.allow(false);  // only this thread moves it
  UseGate gate;
  std::atomic<bool> ends{false};
  const CUcontext context = primary();
  std::thread mover{[&] {
    EXPECT_EQ(driver().cuCtxSetCurrent(context), CUDA_SUCCESS);
    while (!ends) {
      {
        const auto closed = gate.close();
        EXPECT_OK(world().compactor.compact(world().granules(4)));
      }
      std::this_thread::yield();
    }
  }};
  const auto moved = [&] { return world().arena().counters().compacted_granules; };
  // On a busy machine the mover may get no core during a short run.
  for (int runs = 0; runs < 50 && moved() == 0; ++runs) {
    run([&](ArenaWorld& shared, StreamId stream) {
      EXPECT_EQ(driver().cuCtxSetCurrent(context), CUDA_SUCCESS);
      use_while_it_moves(shared, gate, stream);
    });
  }
  ends = true;
  mover.join();
  EXPECT_GT(moved(), 0u);
  EXPECT_EQ(world().arena().counters().live, 0u);
  world().arena().trim(0);
  EXPECT_EQ(world().arena().mapped_bytes(), 0u);
}

TEST_F(ArenaThreads, BlocksOfThreadsNeverOverlap) {
  PRINT_SEED_ON_FAILURE();
  given({.limit_granules = 100, .reserve_granules = 1000, .wait = Duration{1000}});
  Claims claims{world().granules(1000)};
  run([&](ArenaWorld& shared, StreamId stream) { allocate_and_free(shared, claims, stream); });
  EXPECT_EQ(world().arena().counters().live, 0u);
}

TEST_F(ArenaThreads, UnderPressureFromTwoArenas) {
  PRINT_SEED_ON_FAILURE();
  ArenaWorld& world =
      given({.limit_granules = 24, .reserve_granules = 1000, .wait = Duration{500}});
  Claims claims{world.granules(1000)};
  const auto other = world.make_arena();
  std::atomic<bool> stop{false};
  std::thread second{[&] {
    while (!stop) {
      const auto had = other->allocate(3 * MiB, 1);
      if (had.ok()) other->free(**had, {});
      other->trim(0);
      world.arena().counters();
    }
  }};
  run([&](ArenaWorld& shared, StreamId stream) { allocate_and_free(shared, claims, stream); });
  stop = true;
  second.join();
  EXPECT_EQ(other->violation().value_or("nothing"), "nothing");
  EXPECT_LE(world.budget->committed_bytes(), world.budget->limit());
}

using arena::BuildTurns;

std::uint64_t in_milliseconds(std::uint64_t count) {
  return now_ns() + count * 1'000'000;
}

TEST(ArenaBuildTurns, OnlyOneBuildsAtATime) {
  Lock lock{LockOrder::Arena};
  BuildTurns turns;
  Holding holding{lock};
  std::optional<BuildTurns::Turn> first{std::in_place, turns};
  std::optional<BuildTurns::Turn> second{std::in_place, turns};
  ASSERT_TRUE(first->take_now());
  EXPECT_FALSE(second->take_now());
  EXPECT_FALSE(second->take(holding, in_milliseconds(1)));
  bool is_over = false;  // under the lock
  std::thread other{[&] {
    Holding others{lock};
    EXPECT_TRUE(second->take(others, in_milliseconds(60'000)));
    EXPECT_TRUE(is_over);
    second.reset();
  }};
  // A thread that waits for its turn holds nothing.
  EXPECT_TRUE(first->wait_for_others(holding, in_milliseconds(60'000)));
  is_over = true;
  first.reset();
  holding.unlock();
  other.join();
}

TEST(ArenaBuildTurns, AFailedBuildWaitsForTheOthers) {
  Lock lock{LockOrder::Arena};
  BuildTurns turns;
  Holding holding{lock};
  BuildTurns::Turn mine{turns};
  EXPECT_FALSE(mine.wait_for_others(holding, in_milliseconds(60'000))) << "there are none";
  bool is_over = false;  // under the lock
  std::optional<BuildTurns::Turn> second{std::in_place, turns};
  EXPECT_FALSE(mine.wait_for_others(holding, in_milliseconds(1))) << "not in time";
  std::thread other{[&] {
    const Holding others{lock};
    is_over = true;
    second.reset();
  }};
  EXPECT_TRUE(mine.wait_for_others(holding, in_milliseconds(60'000)));
  EXPECT_TRUE(is_over);
  holding.unlock();
  other.join();
}

}  // namespace
}  // namespace cuvmm::test
