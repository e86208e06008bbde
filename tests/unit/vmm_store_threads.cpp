// SPDX-License-Identifier: Apache-2.0
// A store that many threads use. Under ThreadSanitizer, races would show here.
#include <atomic>
#include <random>
#include <thread>

#include "support/scale.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class StoreThreads : public VmmTest {};

// Holds chunks under its own lock, and releases some when asked unless it is busy.
class Holder final : public ReclaimClient {
 public:
  void hold(ChunkRef chunk) {
    const std::lock_guard holding{mutex_};
    held_.push_back(std::move(chunk));
  }
  ChunkRef take_one() {
    const std::lock_guard holding{mutex_};
    if (held_.empty()) return {};
    ChunkRef chunk = std::move(held_.back());
    held_.pop_back();
    return chunk;
  }
  Size reclaim(Size wanted, Location) override {
    const std::unique_lock holding{mutex_, std::try_to_lock};
    if (!holding) return 0;
    Size got = 0;
    while (got < wanted && !held_.empty()) {
      got += held_.back()->size();
      held_.pop_back();
    }
    return got;
  }

 private:
  std::mutex mutex_;
  std::vector<ChunkRef> held_;
};

TEST_F(StoreThreads, TakeAndReturnWithinTheLimitWithoutLoss) {
  PRINT_SEED_ON_FAILURE();
  constexpr int threads = 4;
  constexpr Size limit_in_granules = 12;
  VmmWorld world{driver()};
  world.budget->set_limit(limit_in_granules * world.granule);
  Holder holders[threads];
  std::vector<ReclaimRegistration> registrations;
  for (Holder& holder : holders) registrations.push_back(world.store.add_client(holder, 0));

  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<bool> beyond_the_limit{false};
  const auto work = [&](int index) {
    std::mt19937_64 random{seed() * 100 + static_cast<std::uint64_t>(index)};
    Holder& mine = holders[index];
    for (std::uint64_t step = 0; step < scaled(1500); ++step) {
      switch (random() % 4) {
        case 0:
        case 1: {
          auto chunk = world.store.take(world.kind(1 + random() % 3), &mine);
          if (chunk.ok()) {
            ++taken;
            mine.hold(std::move(chunk).value());
          } else {
            ++refused;
            EXPECT_EQ(chunk.error().kind, ErrorKind::OutOfMemory) << chunk.error().text();
          }
          break;
        }
        case 2:
          world.store.give(mine.take_one());
          break;
        default:
          if (random() % 16 == 0) world.store.trim(world.here, 2 * world.granule);
          break;
      }
      if (world.budget->committed_bytes() > limit_in_granules * world.granule) {
        beyond_the_limit = true;
      }
    }
  };
  std::vector<std::thread> workers;
  for (int index = 0; index < threads; ++index) workers.emplace_back(work, index);
  for (std::thread& worker : workers) worker.join();

  EXPECT_GT(taken.load(), 0u);
  EXPECT_FALSE(beyond_the_limit);
  world.store.check();
  for (Holder& holder : holders) {
    while (ChunkRef chunk = holder.take_one()) world.store.give(std::move(chunk));
  }
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, 0u);
  EXPECT_EQ(world.budget->committed_bytes(), world.store.counters(world.here).physical_free);
  world.store.check();
}

TEST_F(StoreThreads, ARegistrationEndsWhileOthersAsk) {
  VmmWorld world{driver()};
  world.budget->set_limit(world.granule);
  const ChunkRef held = world.chunk();
  std::atomic<bool> done{false};
  std::thread asking{[&] {
    while (!done) EXPECT_EQ(outcome(world.store.take(world.kind())), "out of memory");
  }};
  for (std::uint64_t round = 0; round < scaled(500); ++round) {
    Holder short_lived;  // ends right after its registration: a late call would touch it
    const auto registration = world.store.add_client(short_lived, 0);
  }
  done = true;
  asking.join();
}

TEST_F(StoreThreads, AChunkSharedByThreadsIsReturnedOnce) {
  VmmWorld world{driver()};
  for (std::uint64_t round = 0; round < scaled(200); ++round) {
    ChunkRef chunk = world.chunk();
    std::vector<std::thread> sharing;
    for (int index = 0; index < 3; ++index) {
      sharing.emplace_back([copy = chunk]() mutable {
        const ChunkRef another = copy;
        copy = {};
      });
    }
    chunk = {};
    for (std::thread& thread : sharing) thread.join();
    sharing.clear();
    ASSERT_EQ(world.store.counters(world.here).physical_in_use, 0u);
    ASSERT_EQ(world.store.counters(world.here).physical_free, world.granule);
    world.store.check();
  }
}

}  // namespace
}  // namespace cuvmm::test
