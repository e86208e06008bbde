// SPDX-License-Identifier: Apache-2.0
// Pauses at any moment: between any two calls of a process, with many threads inside calls, and
// with a driver that has stopped obeying.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "paused_program.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

class PauseAlways : public PauseTest {
 protected:
  static void pause_and_resume(Program& program) {
    const auto paused = program.pauser->pause(timeout, Strict::No);
    ASSERT_TRUE(paused.ok()) << paused.error().text();
    EXPECT_EQ(program.on_device(), 0u);
    const auto resumed = program.pauser->resume(Partly::No);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(resumed->moved, paused->moved);
  }
};

// One program of random allocations and frees, paused after its first call, after its second, …
TEST_F(PauseAlways, BetweenAnyTwoCallsOfARandomProgram) {
  const std::uint64_t chosen = seed();
  PRINT_SEED_ON_FAILURE();
  constexpr std::uint64_t calls = 40;
  const std::uint64_t later = sweep_step() == 1 ? 4 : 10;
  for (std::uint64_t stop = 0; stop <= calls && !HasFailure();
       stop += stop < 8 && sweep_step() == 1 ? 1 : later) {
    SCOPED_TRACE("paused after call " + std::to_string(stop));
    MemorySettings settings;
    settings.limit = SizeLimit::of_bytes(48 * MiB);
    settings.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
    Program program{driver(), settings};
    std::mt19937_64 random{chosen};
    for (std::uint64_t call = 0; call <= calls && !HasFailure(); ++call) {
      if (call == stop) pause_and_resume(program);
      if (program.blocks.size() < 4 || random() % 3 != 0) {
        const Size size = Size{1} + random() % (random() % 4 == 0 ? 6 * MiB : 256 * KiB);
        program.add(size, random() % 2 == 0);
      } else {
        program.free(random() % program.blocks.size());
      }
    }
    program.expect_intact();
    program.free_all();
  }
}

// From some call on the driver refuses everything; later it works again.
TEST_F(PauseAlways, LosesNothingThoughTheDriverKeepsRefusing) {
  // Refused from its first calls on, a pause would go on until it times out.
  constexpr std::uint64_t until_it_gives_up_us = 1'000'000;
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("from driver call " + std::to_string(number) + " on: " + name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, {}};
      program.take_a_little_of_everything();
      faulty.fail_from(number, fault);
      const std::uint64_t gives_up_at = now_us() + until_it_gives_up_us;
      const auto is_wanted = [&] { return faulty.faults() == 0 || now_us() < gives_up_at; };
      const auto paused = program.pauser->pause(timeout, Strict::No, {.is_wanted = is_wanted});
      const auto resumed = program.pauser->resume(Partly::No);
      untouched = faulty.faults() == 0;
      if (untouched) {
        EXPECT_TRUE(paused.ok() && resumed.ok());
      } else if (!resumed.ok() && resumed.error().kind == ErrorKind::OutOfMemory) {
        EXPECT_STREQ(resumed.error().subject, "the device has no room; the process stays paused");
      }
      faulty.stop_failing();
      EXPECT_EQ(retry_releases(), 0u);
      const auto again = program.pauser->resume(Partly::No);
      ASSERT_TRUE(again.ok()) << again.error().text();
      EXPECT_FALSE(program.pauser->is_paused());
      EXPECT_FALSE(program.calls.is_shut());
      pause_and_resume(program);
      program.expect_intact();
      program.free_all();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
}

// A failed resume returns its memory to the device.
TEST_F(PauseAlways, AResumeWithoutRoomHoldsNothing) {
  Program program{driver(), limited_to(64 * MiB)};
  program.add(30 * MiB, false);
  program.add(20 * MiB, true);
  ASSERT_TRUE(program.pauser->pause(timeout, Strict::No).ok());
  LocalBudget& budget = program.memory->devices().all().front()->budget();
  budget.note_native(20 * MiB);
  for (int i = 0; i < 3; ++i) {
    const auto refused = program.pauser->resume(Partly::No);
    ASSERT_FALSE(refused.ok());
    EXPECT_STREQ(refused.error().subject,
                 "a limit or a lease leaves no room; the process stays paused");
    EXPECT_EQ(program.on_device(), 0u);
  }
  budget.forget_native(20 * MiB);
  const auto resumed = program.pauser->resume(Partly::No);
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseAlways, AGraphFindsItsMemoryAgain) {
  Program program{driver(), {}};
  CUdeviceptr blocking = 0;
  CUdeviceptr ordered = 0;
  ASSERT_EQ(program.memory->allocate(&blocking, 4 * MiB), Answer{CUDA_SUCCESS});
  ASSERT_EQ(program.memory->allocate_ordered(&ordered, 4 * MiB, StreamName{}),
            Answer{CUDA_SUCCESS});
  for (const CUdeviceptr address : {blocking, ordered}) {
    ASSERT_CUDA(driver().cuMemsetD32(address, 7, MiB));
  }
  ASSERT_CUDA(synchronize());
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CUDA(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  (void)program.clock->table().find(StreamName{stream, false});
  ASSERT_CUDA(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const CUdeviceptr address : {blocking, ordered}) {
    ASSERT_CUDA(launch(kernels().add_one, stream, address, static_cast<std::uint32_t>(MiB)));
  }
  ASSERT_CUDA(driver().cuStreamEndCapture(stream, &graph));
  ASSERT_CUDA(driver().cuGraphInstantiateWithFlags(&exec, graph, 0));
  std::uint32_t expected = 7;
  for (int round = 0; round < 3; ++round) {
    ASSERT_CUDA(driver().cuGraphLaunch(exec, stream));
    program.submission_epoch.leave();
    ++expected;
    pause_and_resume(program);  // the pause waits for the graph
    for (const CUdeviceptr address : {blocking, ordered}) {
      EXPECT_EQ(read_word(address), expected);
      EXPECT_EQ(read_word(address + 4 * MiB - 4), expected);
    }
  }
  EXPECT_CUDA(driver().cuGraphExecDestroy(exec));
  EXPECT_CUDA(driver().cuGraphDestroy(graph));
  EXPECT_CUDA(driver().cuStreamDestroy(stream));
  EXPECT_EQ(program.memory->free(blocking), Answer{CUDA_SUCCESS});
  EXPECT_EQ(program.memory->free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
}

// As in the doors: every call enters the call barrier, and calls that submit work enter the gate as
// well.
TEST_F(PauseAlways, WithManyThreadsInTheMiddleOfCalls) {
  constexpr int thread_count = 32;
  Program program{driver(), {}};
  program.add(4 * MiB, false);
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> calls_made{0};
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().cuCtxGetCurrent(&context));
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_CUDA(driver().cuCtxSetCurrent(context));
      std::mt19937_64 random{static_cast<std::uint64_t>(i)};
      CUdeviceptr held = 0;
      const std::uint32_t mark = 1000u + static_cast<std::uint32_t>(i);
      constexpr Size size = 128 * KiB;
      while (!ends) {
        const CallBarrier::Pass call{program.calls};
        if (held == 0) {
          EXPECT_EQ(program.memory->allocate(&held, size), Answer{CUDA_SUCCESS});
          const Gate::Pass work{program.gate};
          EXPECT_CUDA(driver().cuMemsetD32(held, mark, size / 4));
          program.submission_epoch.leave();
        } else if (random() % 2 == 0) {
          std::uint32_t word = 0;
          EXPECT_CUDA(driver().cuMemcpyDtoH(&word, held + size - 4, 4));
          EXPECT_EQ(word, mark);
        } else {
          EXPECT_EQ(program.memory->free(held), Answer{CUDA_SUCCESS});
          held = 0;
        }
        ++calls_made;
      }
      if (held != 0) {
        EXPECT_EQ(program.memory->free(held), Answer{CUDA_SUCCESS});
      }
    });
  }
  for (std::uint64_t i = 0; i < scaled(30) && !HasFailure(); ++i) {
    const std::uint64_t before = calls_made;
    while (calls_made < before + thread_count && !HasFailure()) std::this_thread::yield();
    const auto paused = program.pauser->pause(timeout, Strict::No);
    EXPECT_TRUE(paused.ok()) << paused.error().text();
    if (!paused.ok()) break;
    const std::uint64_t while_paused = calls_made;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    EXPECT_EQ(calls_made, while_paused);
    const auto resumed = program.pauser->resume(Partly::No);
    EXPECT_TRUE(resumed.ok()) << resumed.error().text();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseAlways, HostMemoryIsKeptForTheNextTimeAndGivenBackWhenIdle) {
  Program program{driver(), {}, small_ring};
  program.add(16 * MiB, false);
  EXPECT_EQ(program.pauser->ready_bytes(), 0u);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  EXPECT_EQ(program.pauser->ready_bytes(), small_ring.ring);
  while (program.pauser->pin_more()) {
  }
  const Size ready = small_ring.ring + 16 * MiB;
  EXPECT_EQ(program.pauser->ready_bytes(), ready);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
  constexpr Duration an_hour{3600ll * 1'000'000};
  EXPECT_FALSE(program.pauser->look_after_stock(0, an_hour));
  EXPECT_EQ(program.pauser->ready_bytes(), ready);
  pause_and_resume(program);
  EXPECT_EQ(program.pauser->ready_bytes(), ready);
  while (program.pauser->look_after_stock(0, Duration{0})) {
  }
  EXPECT_EQ(program.pauser->ready_bytes(), 0u);
  program.expect_intact();
}

TEST_F(PauseAlways, NoMoreHostMemoryIsPinnedAheadThanCanBeMoved) {
  Program program{driver(), {}};
  program.add(8 * MiB, false);
  while (program.pauser->look_after_stock(unlimited, Duration{0})) {
  }
  EXPECT_EQ(program.pauser->ready_bytes(), 8 * MiB);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_TRUE(paused.ok());
  EXPECT_EQ(program.pauser->ready_bytes(), 8 * MiB);
  ASSERT_TRUE(program.pauser->resume(Partly::No).ok());
  program.expect_intact();
}

}  // namespace
}  // namespace cuvmm::test
