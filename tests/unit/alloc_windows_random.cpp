// SPDX-License-Identifier: Apache-2.0
// Random programs over windows, compared after every step with what a program knows: the addresses
// of its blocks, and what it wrote to them.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "alloc_windows_world.hpp"
#include "support/faulty_driver.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Size memory = 96 * MiB;

struct Held {
  WindowBlock* block;
  Size asked;
  std::uint64_t seed;
};

class RandomWindows : public WindowsTest {
 protected:
  void SetUp() override {
    WindowsTest::SetUp();
    if (HasFatalFailure()) return;
    random_.seed(seed());
    faulty_.emplace(driver());
    world_.emplace(*faulty_, memory, [](WindowSettings& settings) {
      settings.seed = seed();
      settings.reserve_step = 64 * MiB;
      settings.wait = Duration{20'000};
    });
  }
  void TearDown() override {
    world_.reset();
    faulty_.reset();
    WindowsTest::TearDown();
  }

  Size below(Size bound) { return random_() % bound; }

  Size some_size() {
    switch (below(8)) {
      case 0:
      case 1:
        return 100 * KiB;
      case 2:
        return 512 * KiB;
      case 3:
        return 64 * KiB + below(2 * MiB);
      case 4:
        return 2 * MiB + below(6 * MiB);
      case 5:
        return 3 * MiB;
      case 6:
        return below(8) == 0 ? below(2 * memory) + 1 : 16 * MiB + below(4) * 256 * KiB;
      default:
        return 256 * KiB;
    }
  }

  void allocate_something() {
    const Size asked = some_size();
    const auto block = (*world_)->allocate(asked);
    if (!block.ok()) {
      refused_ += 1;
      if (faulty_->faults() == 0) {
        EXPECT_EQ(block.error().kind, ErrorKind::OutOfMemory) << block.error().text();
        EXPECT_LT(block.error().available, asked) << block.error().text();
      }
      return;
    }
    ASSERT_GE((*block)->granted(), asked);
    ASSERT_LT((*block)->granted(), asked + step_of_block(asked, world_->granule));
    ASSERT_EQ((*block)->address() % 256, 0u);
    held_.push_back({*block, asked, ++last_seed_ * 10});
    mark((*block)->address(), (*block)->granted(), held_.back().seed);
  }

  void free_something() {
    if (held_.empty()) return;
    std::swap(held_[below(held_.size())], held_.back());
    const Held held = held_.back();
    held_.pop_back();
    expect_marked(held.block->address(), held.block->granted(), held.seed);
    if (below(3) != 0) {
      (*world_)->free(*held.block);
      return;
    }
    const auto stream = static_cast<StreamId>(1 + below(3));
    (*world_)->free_after(*held.block, {.stream = stream, .tick = ++ticks_[stream]});
  }

  // A stream completes some or all of the work that its frees wait for.
  void let_work_end() {
    const auto stream = static_cast<StreamId>(1 + below(3));
    done_[stream] += below(ticks_[stream] - done_[stream] + 1);
    world_->order.finish(stream, done_[stream]);
  }

  void pin_something() {
    if (held_.empty()) return;
    WindowBlock& block = *held_[below(held_.size())].block;
    switch (below(4)) {
      case 0:
        return (*world_)->pin(block, pin::exported);
      case 1:
        return (*world_)->pin(block, pin::sync_memops);
      default:
        return (*world_)->unpin(block, pin::sync_memops);
    }
  }

  void do_something() {
    switch (below(20)) {
      case 0:
        return let_work_end();
      case 1:
        return pin_something();
      case 2:
        (void)(*world_)->reclaim(below(8) * world_->granule, world_->here);
        return;
      case 3:
        if (below(4) == 0) (void)(*world_)->trim(below(memory));
        return;
      case 4:
        // Rarely, so that compaction usually has something to do.
        if (below(8) != 0) return;
        while (held_.size() > 10) free_something();
        return;
      case 5:
      case 6:
      case 7:
      case 8:
      case 9:
        return free_something();
      default:
        return allocate_something();
    }
  }

  void check() {
    ASSERT_EQ((*world_)->violation().value_or("nothing"), "nothing");
    ASSERT_EQ(world_->store.violation().value_or("nothing"), "nothing");
    for (const Held& held : held_) {
      expect_marked(held.block->address(), held.block->granted(), held.seed);
    }
    std::vector<WindowBlock*> blocks;
    Size live = 0;
    for (const Held& held : held_) {
      blocks.push_back(held.block);
      live += held.block->granted();
    }
    expect_true(world_->windows(), blocks);
    EXPECT_EQ((*world_)->counters().live_bytes, live);
    const WindowCounters counters = (*world_)->counters();
    EXPECT_EQ(counters.physical_bytes - counters.spilled_bytes, world_->physical());
    EXPECT_EQ(counters.spilled_bytes, world_->store.spilled().physical_in_use);
    EXPECT_LE(counters.spilled_taken, counters.spilled_bytes);
    EXPECT_LE(world_->spill_budget->committed_bytes(), world_->spill_budget->limit());
    EXPECT_LE(world_->budget->committed_bytes(), memory);
    if (counters.spilled_bytes != 0) ++spilled_;
  }

  std::mt19937_64 random_;
  std::optional<FaultyDriver> faulty_;
  std::optional<WindowsWorld> world_;
  std::vector<Held> held_;
  std::map<StreamId, std::uint64_t> ticks_;
  std::map<StreamId, std::uint64_t> done_;
  std::uint64_t last_seed_ = 0;
  std::uint64_t refused_ = 0;
  int spilled_ = 0;  // number of times that memory was spilled
};

TEST_F(RandomWindows, BlocksKeepTheirAddressesAndContents) {
  PRINT_SEED_ON_FAILURE();
  for (std::uint64_t i = 0; i < scaled(6000) && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    do_something();
    if (i % 16 == 0) check();
  }
  check();
  EXPECT_GT((*world_)->counters().compacted_blocks, 0u) << "nothing of what matters happened";
  EXPECT_GT(refused_, 0u);
}

TEST_F(RandomWindows, TheSameWhileTheDriverFailsNowAndThen) {
  PRINT_SEED_ON_FAILURE();
  for (std::uint64_t i = 0; i < scaled(4000) && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const bool fails = below(3) == 0;
    if (fails) {
      const CUresult answer = below(2) == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
      if (below(4) == 0) {
        faulty_->fail_from(1 + below(30), answer);
      } else {
        faulty_->fail_call(1 + below(30), answer);
      }
    }
    do_something();
    if (!fails) continue;
    faulty_->stop_failing();
    // The next request for memory repairs what could not be undone.
    (void)(*world_)->trim(unlimited);
    check();
  }
  EXPECT_GT((*world_)->counters().compacted_blocks, 0u);
}

TEST_F(RandomWindows, SpillWhatTheDeviceHasNoRoomFor) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  world_->spill(memory / 4);
  for (std::uint64_t i = 0; i < scaled(4000) && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    do_something();
    if (i % 16 == 0) check();
  }
  check();
  EXPECT_GT(spilled_, 0);
  EXPECT_GT(refused_, 0u);
}

TEST_F(RandomWindows, SpillWhileTheDriverFailsNowAndThen) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  PRINT_SEED_ON_FAILURE();
  world_->spill(memory / 4);
  for (std::uint64_t i = 0; i < scaled(3000) && !HasFailure(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const bool fails = below(3) == 0;
    if (fails) {
      faulty_->fail_call(1 + below(40),
                         below(2) == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    }
    do_something();
    if (!fails) continue;
    faulty_->stop_failing();
    (void)(*world_)->trim(unlimited);
    check();
  }
  EXPECT_GT(spilled_, 0);
}

// One of several threads, each of which uses its own blocks only.
void run_thread(WindowsWorld& world, std::uint64_t thread, std::atomic<int>& failures) {
  GIVEN(driver().cuCtxSetCurrent(nullptr));
  const PrimaryContext context;
  std::mt19937_64 random{seed() * 100 + thread};
  std::vector<Held> held;
  for (std::uint64_t i = 0; i < scaled(1500); ++i) {
    if (random() % 5 < 3) {
      constexpr std::array<Size, 5> sizes{64 * KiB, 100 * KiB, 512 * KiB, 3 * MiB, 7 * MiB};
      const auto block = world->allocate(sizes[random() % sizes.size()]);
      if (!block.ok()) continue;
      const std::uint64_t mark_of_block = thread << 32 | i;
      GIVEN(driver().cuMemsetD32((*block)->address(), static_cast<unsigned>(mark_of_block), 4));
      held.push_back({*block, 0, mark_of_block});
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      if (read_word(held.back().block->address()) != static_cast<unsigned>(held.back().seed)) {
        ++failures;
      }
      world->free(*held.back().block);
      held.pop_back();
    }
  }
  for (const Held& last : held) {
    if (read_word(last.block->address()) != static_cast<unsigned>(last.seed)) ++failures;
    world->free(*last.block);
  }
}

// Stands in for the gate: threads touch their blocks only while nothing moves.
TEST_F(WindowsTest, ThreadsShareWindows) {
  PRINT_SEED_ON_FAILURE();
  WindowsWorld world{driver(), 128 * MiB};
  world.quiescence.refuse();  // running work cannot be held back here
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 1; thread <= 4; ++thread) {
    threads.emplace_back([&, thread] { run_thread(world, thread, failures); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
  EXPECT_EQ(world->counters().live_blocks, 0u);
}

TEST_F(WindowsTest, ThreadsAllocateAndFreeWhileBlocksMove) {
  PRINT_SEED_ON_FAILURE();
  WindowsWorld world{driver(), 128 * MiB};
  auto blocks = world.fill_with(256 * KiB);
  for (const WindowBlock* block : blocks) mark(*block);
  world.free_every_second(blocks);
  std::atomic<bool> ends{false};
  // Blocks that nobody writes to may be allocated and freed at any time.
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 1; thread <= 2; ++thread) {
    threads.emplace_back([&, thread] {
      const PrimaryContext context;
      std::mt19937_64 random{seed() * 100 + thread};
      while (!ends) {
        const auto block = world->allocate(random() % 2 == 0 ? 256 * KiB : 3 * MiB);
        if (block.ok()) world->free(**block);
      }
    });
  }
  for (std::uint64_t i = 0; i < scaled(30); ++i) {
    const auto large = world->allocate(40 * MiB);
    if (large.ok()) world->free(**large);
    const auto stream = std::make_shared<CopyStream>(driver());
    EXPECT_OK(world->compact(8 * MiB, {{stream, 0}}));
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  for (const WindowBlock* block : blocks) expect_marked(*block);
  expect_true(world.windows(), blocks);
  EXPECT_GT(world->counters().compacted_blocks, 0u);
}

}  // namespace
}  // namespace cuvmm::test
