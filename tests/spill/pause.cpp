// SPDX-License-Identifier: Apache-2.0
// A process that leaves its device and comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <regex>
#include <thread>

#include "spill/pause.hpp"
#include "support/fault_sweep.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Duration timeout{5'000'000};

#define ASSERT_DONE(expression)                                                 \
  do {                                                                          \
    const auto outcome = (expression);                                          \
    ASSERT_TRUE(outcome.ok()) << #expression << ": " << outcome.error().text(); \
  } while (false)

// A program with memory of every kind, and what it wrote there.
class Program {
 public:
  Program(const Driver& with, const MemorySettings& settings) : driver(with) {
    clock.emplace(driver, captures);
    memory.emplace(
        Memory::Surroundings{driver, *clock, captures, gate, work_note, [] { return true; }},
        settings);
    pauser.emplace(
        Pauser::Surroundings{driver, *memory, gate, [this] { ++held; }, [this] { --held; }});
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void take_some_of_everything() {
    for (const Size size : {100 * Size{1}, 2000 * Size{1}, 64 * KiB, 100 * KiB, 300 * KiB, 3 * MiB,
                            5 * MiB + 512, 16 * MiB, 2 * MiB}) {
      add(size, false);
      add(size, true);
    }
    // Some are gone again, so that what is left lies among free memory.
    for (const std::size_t i : {14u, 9u, 4u, 3u}) {
      free(i);
    }
  }
  // One of each kind of block, and no more.
  void take_a_little_of_everything() {
    for (const Size size : {100 * Size{1}, 100 * KiB, 3 * MiB}) {
      add(size, false);
      add(size, true);
    }
  }
  void add(Size size, bool ordered) {
    CUdeviceptr address = 0;
    const Answer answer = ordered ? memory->allocate_ordered(&address, size, StreamName{})
                                  : memory->allocate(&address, size);
    ASSERT_EQ(answer, Answer{CUDA_SUCCESS}) << size;
    blocks.push_back({address, size, ordered, ++last_seed});
    fill_pattern(address, size, last_seed);
    work_note.leave();
  }
  void free(std::size_t i) {
    const Block& block = blocks[i];
    const Answer answer = block.ordered ? memory->free_ordered(block.address, StreamName{})
                                        : memory->free(block.address);
    EXPECT_EQ(answer, Answer{CUDA_SUCCESS});
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void expect_intact() {
    for (const Block& block : blocks) expect_pattern(block.address, block.size, block.seed);
    EXPECT_EQ(memory->complaint().value_or("nothing"), "nothing");
  }
  void free_all() {
    while (!blocks.empty()) free(blocks.size() - 1);
  }
  Size on_device() const {
    const DeviceMemory& device = *memory->served_devices().front();
    const ChunkCounters chunks = device.chunk_counters();
    return chunks.physical_in_use + chunks.physical_free + chunks.physical_unreleased;
  }

  struct Block {
    CUdeviceptr address;
    Size size;
    bool ordered;
    std::uint64_t seed;
  };
  const Driver& driver;
  Captures captures;
  Gate gate;
  WorkNote work_note;
  int held = 0;  // the program's calls wait
  std::optional<StreamClock> clock;
  std::optional<Memory> memory;
  std::optional<Pauser> pauser;
  std::vector<Block> blocks;
  std::uint64_t last_seed = 0;
};

class PauseTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "the device cannot map memory of the host";
    }
  }
};

TEST_F(PauseTest, GivesAllDeviceMemoryBackAndRestoresIt) {
  Program program{driver(), {}};
  program.take_some_of_everything();
  const Size before = memory_info().free;
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_EQ(program.on_device(), 0u);
  EXPECT_GE(memory_info().free, before + paused->moved);
  EXPECT_EQ(paused->stayed, 0u);
  EXPECT_TRUE(program.pauser->is_paused());
  EXPECT_EQ(program.held, 1);

  const auto resumed = program.pauser->resume(timeout, Partly::No);
  ASSERT_DONE(resumed);
  EXPECT_EQ(resumed->moved, paused->moved);
  EXPECT_EQ(program.held, 0);
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  program.expect_intact();
  program.take_a_little_of_everything();
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseTest, SaysTheSameWhenAskedAgain) {
  Program program{driver(), {}};
  program.take_some_of_everything();
  const auto nothing = program.pauser->resume(timeout, Partly::No);
  ASSERT_DONE(nothing);
  EXPECT_EQ(nothing->moved, 0u);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  const auto again = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(again);
  EXPECT_EQ(again->moved, paused->moved);
  EXPECT_EQ(program.held, 1);
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, AProgramWithoutMemoryCanBePausedToo) {
  Program program{driver(), {}};
  const auto paused = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_DONE(paused);
  EXPECT_EQ(paused->moved, 0u);
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
}

TEST_F(PauseTest, KernelsReadTheSameWordsAfterwards) {
  Program program{driver(), {}};
  CUdeviceptr address = 0;
  ASSERT_EQ(program.memory->allocate(&address, 4 * MiB), Answer{CUDA_SUCCESS});
  ASSERT_CUDA(driver().cuMemsetD32(address, 40, MiB));
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
  ASSERT_CUDA(launch(kernels().add_one, nullptr, address, static_cast<std::uint32_t>(MiB)));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(address), 41u);
  EXPECT_EQ(read_word(address + 4 * MiB - 4), 41u);
  EXPECT_EQ(program.memory->free(address), Answer{CUDA_SUCCESS});
}

TEST_F(PauseTest, WhatAnotherProcessHoldsStays) {
  Program program{driver(), {}};
  program.add(8 * MiB, false);
  program.add(256 * KiB, false);
  program.add(8 * MiB, true);
  for (const Program::Block& block : program.blocks) {
    EXPECT_TRUE(program.memory->pin(block.address, pin::legacy_ipc));
  }
  const auto strict = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().kind, ErrorKind::NotSupported);
  EXPECT_EQ(program.held, 0);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GE(paused->stayed, 18 * MiB);
  EXPECT_STRNE(paused->why, "");
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, WorkThatDoesNotEndInTimeRefusesIt) {
  Program program{driver(), {}};
  program.add(4 * MiB, false);
  std::atomic<bool> ends{false};
  CUstream stream = nullptr;
  ASSERT_CUDA(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  (void)program.clock->table().find(StreamName{stream, false});
  ASSERT_CUDA(driver().cuLaunchHostFunc(
      stream,
      [](void* end) {
        while (!static_cast<std::atomic<bool>*>(end)->load()) std::this_thread::yield();
      },
      &ends));
  program.work_note.leave();
  const auto refused = program.pauser->pause(Duration{100'000}, Strict::No);
  ends = true;
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::TimedOut);
  EXPECT_EQ(program.held, 0);
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));
  program.expect_intact();
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
  program.expect_intact();
  EXPECT_CUDA(driver().cuStreamDestroy(stream));
}

TEST_F(PauseTest, WithoutRoomOnTheDeviceItStaysPausedOrGoesOnPartly) {
  MemorySettings settings;
  settings.limit = SizeLimit::of_bytes(64 * MiB);
  Program program{driver(), settings};
  program.add(30 * MiB, false);
  program.add(30 * MiB, true);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  LocalBudget& budget = program.memory->served_devices().front()->budget();
  budget.set_limit(32 * MiB);
  const auto refused = program.pauser->resume(timeout, Partly::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.pauser->is_paused());
  EXPECT_EQ(program.held, 1);

  const auto partly = program.pauser->resume(timeout, Partly::Yes);
  ASSERT_DONE(partly);
  EXPECT_GE(partly->stayed, 20 * MiB);
  EXPECT_EQ(program.held, 0);
  program.expect_intact();

  // The rest comes back by the next pause and resume.
  budget.set_limit(64 * MiB);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  program.expect_intact();
  program.free_all();
}

// Whatever call fails, the program goes on with all that it had, or stays paused and can be asked
// again.
TEST_F(PauseTest, LosesNothingWhateverCallFails) {
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = 1; !untouched && number < most_calls_of_a_scenario; ++number) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, {}};
      program.take_a_little_of_everything();
      faulty.fail_call(number, fault);
      const auto paused = program.pauser->pause(timeout, Strict::No);
      const bool failed_before = faulty.faults() != 0;
      if (paused.ok()) {
        EXPECT_EQ(program.held, 1);
        for (int tries = 0; program.pauser->is_paused() && tries < 3; ++tries) {
          (void)program.pauser->resume(timeout, Partly::No);
        }
      } else {
        EXPECT_TRUE(failed_before) << paused.error().text();
      }
      untouched = faulty.faults() == 0;
      faulty.stop_failing();
      EXPECT_FALSE(program.pauser->is_paused());
      EXPECT_EQ(program.held, 0);
      program.expect_intact();
      program.add(3 * MiB, false);
      program.expect_intact();
      program.free_all();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
}

// Memory that comes back is new memory, whose handles may differ.
std::string held_whatever_the_handles() {
  return std::regex_replace(held_by_the_process(), std::regex("chunk 0x[0-9a-f]+"), "chunk");
}

TEST_F(PauseTest, AThousandTimesLeakNothing) {
  Program program{driver(), {}};
  program.add(2 * MiB, false);
  program.add(128 * KiB, false);
  program.add(2 * MiB, true);
  std::string held;
  for (std::uint64_t i = 0; i < scaled(1000); ++i) {
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
    if (i == 2) held = held_whatever_the_handles();
  }
  EXPECT_EQ(held_whatever_the_handles(), held);
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseTest, SpilledMemoryComesThroughItToo) {
  MemorySettings settings;
  settings.limit = SizeLimit::of_bytes(16 * MiB);
  settings.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
  settings.compact = Compact::Off;  // whose stream lives as long as the context
  Program program{driver(), settings};
  std::mt19937_64 random{seed()};
  PRINT_SEED_ON_FAILURE();
  for (std::uint64_t i = 0; i < scaled(300) && !HasFailure(); ++i) {
    if (program.blocks.size() < 8 || random() % 2 == 0) {
      if (program.blocks.size() < 24) program.add(1 + random() % (3 * MiB), random() % 2 == 0);
    } else {
      program.free(random() % program.blocks.size());
    }
    if (i % 10 != 0) continue;
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    EXPECT_EQ(program.on_device(), 0u);
    ASSERT_DONE(program.pauser->resume(timeout, Partly::No));
    program.expect_intact();
  }
  program.free_all();
}

}  // namespace
}  // namespace cuvmm::test
