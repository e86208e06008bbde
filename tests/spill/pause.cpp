// SPDX-License-Identifier: Apache-2.0
// A process that vacates its device and comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <regex>
#include <thread>

#include "paused_program.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST_F(PauseTest, ReleasesAllDeviceMemoryAndRestoresIt) {
  Program program{driver(), {}, small_ring};
  program.take_some_of_everything();
  const Size before = memory_info().free;
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_EQ(program.on_device(), 0u);
  EXPECT_GE(memory_info().free, before + paused->moved);
  EXPECT_EQ(paused->stayed, 0u);
  EXPECT_TRUE(program.pauser->is_paused());
  EXPECT_TRUE(program.calls.is_shut());

  const auto resumed = program.pauser->resume(Partly::No);
  ASSERT_DONE(resumed);
  EXPECT_EQ(resumed->moved, paused->moved);
  EXPECT_FALSE(program.calls.is_shut());
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  program.expect_intact();
  program.take_a_little_of_everything();
  program.expect_intact();
  program.free_all();
}

// At whatever step its caller goes away.
TEST_F(PauseTest, ThatIsNoLongerWantedStopsAndTheProgramGoesOn) {
  for (int polls = 0; polls < 4; ++polls) {
    Program program{driver(), {}, small_ring};
    program.take_some_of_everything();
    int polled = 0;
    const auto given_up =
        program.pauser->pause(timeout, Strict::No, {.is_wanted = [&] { return polled++ < polls; }});
    ASSERT_FALSE(given_up.ok()) << polls;
    EXPECT_EQ(given_up.error().kind, ErrorKind::TimedOut) << given_up.error().text();
    EXPECT_FALSE(program.pauser->is_paused());
    EXPECT_FALSE(program.calls.is_shut());
    program.expect_intact();
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    ASSERT_DONE(program.pauser->resume(Partly::No));
    program.expect_intact();
    program.free_all();
  }
}

class PauseWithoutReturn : public PauseTest {
 protected:
  // Resumes a program that waits in a call, while the driver fails as `fail` tells it to. `check`
  // sees the outcome before the driver works again.
  static void resume_in_vain(
      Partly partly, const std::function<void(FaultyDriver&)>& fail,
      const std::function<void(const FaultyDriver&, const CallBarrier&, const Error&)>& check) {
    FaultyDriver faulty{driver()};
    Program program{faulty, {}};
    program.take_a_little_of_everything();
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    std::thread held{[&] { const CallBarrier::Pass pass{program.calls}; }};
    CUcontext current = nullptr;
    ASSERT_CUDA(driver().cuCtxPopCurrent(&current));
    fail(faulty);

    const auto resumed = program.pauser->resume(partly);

    held.join();
    ASSERT_FALSE(resumed.ok());
    check(faulty, program.calls, resumed.error());
    faulty.stop_failing();
    ASSERT_CUDA(driver().cuCtxPushCurrent(current));
    EXPECT_TRUE(program.pauser->resume(Partly::No).ok()) << "leaves nothing behind in this process";
  }
};

// As when a program that is exiting has shut down the driver and then frees its memory.
TEST_F(PauseWithoutReturn, HoldsNoCallOnceTheDriverHasBeenShutDown) {
  resume_in_vain(
      Partly::No,
      [](FaultyDriver& faulty) {
        faulty.fail_call(Call::cuCtxPushCurrent_v2, 1, CUDA_ERROR_DEINITIALIZED);
      },
      [](const FaultyDriver& faulty, const CallBarrier& calls, const Error&) {
        EXPECT_EQ(faulty.faults(), 1U);
        EXPECT_EQ(calls.abandoned_with(), CUDA_ERROR_DEINITIALIZED);
      });
}

// As after an ECC error: no later attempt can succeed, and the program must learn why.
TEST_F(PauseWithoutReturn, HoldsNoCallOnceTheDeviceHasFailed) {
  constexpr CUresult failure = CUDA_ERROR_ECC_UNCORRECTABLE;
  for (const Call first : {Call::cuCtxPushCurrent_v2, Call::cuMemCreate}) {
    resume_in_vain(
        Partly::Yes, [&](FaultyDriver& faulty) { faulty.fail_from(first, 1, failure); },
        [&](const FaultyDriver&, const CallBarrier& calls, const Error& error) {
          EXPECT_EQ(to_cuda(error), failure);
          EXPECT_EQ(calls.abandoned_with(), failure);
        });
  }
}

TEST_F(PauseTest, IsRefusedAtOnceWhileAContextIsLost) {
  Program program{driver(), {}};
  program.take_a_little_of_everything();
  CUcontext context = nullptr;
  ASSERT_CUDA(driver().cuCtxGetCurrent(&context));
  program.memory->work().context_is_lost(context);
  const auto refused = program.pauser->pause(timeout, Strict::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::NotSupported);
  EXPECT_NE(refused.error().text().find("its work has failed"), std::string::npos);
  EXPECT_FALSE(program.calls.is_shut());
  program.memory->work().context_ended(context);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, IsIdempotent) {
  Program program{driver(), {}};
  program.take_some_of_everything();
  const auto nothing = program.pauser->resume(Partly::No);
  ASSERT_DONE(nothing);
  EXPECT_EQ(nothing->moved, 0u);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  const auto again = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(again);
  EXPECT_EQ(again->moved, paused->moved);
  EXPECT_TRUE(program.calls.is_shut());
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, AProgramWithoutMemoryCanBePausedToo) {
  Program program{driver(), {}};
  const auto paused = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_DONE(paused);
  EXPECT_EQ(paused->moved, 0u);
  ASSERT_DONE(program.pauser->resume(Partly::No));
}

// Work of any context counts: a kernel may use another context's memory.
TEST_F(PauseTest, WorkOfAContextThatHasNoMemoryIsWaitedFor) {
  Program program{driver(), {}};
  program.take_a_little_of_everything();
  CUcontext other = nullptr;
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&other, 0, device()));
  program.memory->contexts().began(other);
  std::atomic<bool> may_end{false};
  const auto wait = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  };
  ASSERT_CUDA(driver().cuLaunchHostFunc(nullptr, wait, &may_end));
  CUcontext popped = nullptr;
  ASSERT_CUDA(driver().cuCtxPopCurrent(&popped));
  const auto refused = program.pauser->pause(Duration{100'000}, Strict::No);
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(program.memory->clock().wait_for_everything(now_ns()));
  may_end = true;
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.memory->contexts().ended(other);
  ASSERT_CUDA(driver().cuCtxDestroy(other));
  program.expect_intact();
  program.free_all();
}

// Memory of a device's pool outlives the context in which it was allocated.
TEST_F(PauseTest, WithoutAContextItIsRefusedAndTheProgramContinues) {
  Program program{driver(), {}};
  CUcontext own = nullptr;
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&own, 0, device()));
  program.memory->contexts().began(own);
  CUdeviceptr address = 0;
  ASSERT_EQ(program.memory->allocate_ordered(&address, 3 * MiB, StreamName{}),
            Answer{CUDA_SUCCESS});
  ASSERT_CUDA(driver().cuStreamSynchronize(nullptr));
  ASSERT_CUDA(driver().cuCtxDestroy(own));
  program.memory->contexts().ended(own);
  const auto refused = program.pauser->pause(timeout, Strict::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_FALSE(program.pauser->is_paused());
  EXPECT_FALSE(program.calls.is_shut());
  program.take_a_little_of_everything();
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, KernelsReadTheSameWordsAfterwards) {
  Program program{driver(), {}};
  CUdeviceptr address = 0;
  ASSERT_EQ(program.memory->allocate(&address, 4 * MiB), Answer{CUDA_SUCCESS});
  ASSERT_CUDA(driver().cuMemsetD32(address, 40, MiB));
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  ASSERT_CUDA(launch(kernels().add_one, nullptr, address, static_cast<std::uint32_t>(MiB)));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(read_word(address), 41u);
  EXPECT_EQ(read_word(address + 4 * MiB - 4), 41u);
  EXPECT_EQ(program.memory->free(address), Answer{CUDA_SUCCESS});
}

TEST_F(PauseTest, MemoryOpenInAnotherProcessStays) {
  Program program{driver(), {}};
  program.add(8 * MiB, false);
  program.add(256 * KiB, false);
  program.add(8 * MiB, true);
  for (const Program::Block& block : program.blocks) {
    EXPECT_TRUE(program.memory->held().pin(block.address, pin::legacy_ipc));
  }
  const auto strict = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().kind, ErrorKind::NotSupported);
  EXPECT_FALSE(program.calls.is_shut());
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GE(paused->stayed, 18 * MiB);
  EXPECT_STRNE(paused->why, "");
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
}

// Compaction leaves such memory in place too: the program that set the attribute may transfer
// without the driver.
TEST_F(PauseTest, MemoryWithSyncMemopsStays) {
  Program program{driver(), {}};
  program.add(8 * MiB, false);
  program.add(256 * KiB, false);
  program.add(8 * MiB, true);
  for (const Program::Block& block : program.blocks) {
    program.memory->held().set_sync_memops(block.address, true);
  }
  const auto strict = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().kind, ErrorKind::NotSupported);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GE(paused->stayed, 18 * MiB);
  EXPECT_NE(std::string{paused->why}.find("SYNC_MEMOPS"), std::string::npos) << paused->why;
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
  for (const Program::Block& block : program.blocks) {
    program.memory->held().set_sync_memops(block.address, false);
  }
  const auto whole = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_DONE(whole);
  EXPECT_EQ(whole->stayed, 0u);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
}

TEST_F(PauseTest, IsRefusedIfWorkDoesNotEndInTime) {
  Program program{driver(), {}};
  program.add(4 * MiB, false);
  EndlessWork work{driver(), program};
  const auto refused = program.pauser->pause(Duration{100'000}, Strict::No);
  work.let_end(driver());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::TimedOut);
  EXPECT_FALSE(program.calls.is_shut());
  program.expect_intact();
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
  work.end(driver());
}

TEST_F(PauseTest, WithoutRoomOnTheDeviceItStaysPausedOrResumesPartly) {
  Program program{driver(), limited_to(64 * MiB)};
  program.add(30 * MiB, false);
  program.add(30 * MiB, true);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  LocalBudget& budget = program.memory->devices().all().front()->budget();
  budget.note_native(32 * MiB);
  const auto refused = program.pauser->resume(Partly::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.pauser->is_paused());
  EXPECT_TRUE(program.calls.is_shut());

  const auto partly = program.pauser->resume(Partly::Yes);
  ASSERT_DONE(partly);
  EXPECT_GE(partly->stayed, 20 * MiB);
  EXPECT_FALSE(program.calls.is_shut());
  program.expect_intact();

  // The next pause and resume bring the rest back.
  budget.forget_native(32 * MiB);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  program.expect_intact();
  program.free_all();
}

// The program has taken memory natively, which is never refused and counts. What was beyond the
// limit before the pause may be so after it, and no more than that.
TEST_F(PauseTest, MemoryBeyondTheLimitReturns) {
  Program program{driver(), limited_to(64 * MiB)};
  program.add(30 * MiB, false);
  program.add(10 * MiB, true);
  LocalBudget& budget = program.memory->devices().all().front()->budget();
  const Size native = 50 * MiB;
  budget.note_native(native);
  const Size excess = budget.excess();
  ASSERT_GT(excess, 20 * MiB);
  for (int times = 0; times < 2; ++times) {
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    ASSERT_DONE(program.pauser->resume(Partly::No));
    EXPECT_EQ(program.pauser->paused_bytes(), 0U);
    EXPECT_EQ(budget.excess(), excess);
    EXPECT_FALSE(budget.commit(2 * MiB).ok());
    program.expect_intact();
  }
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  budget.set_limit(60 * MiB);  // which takes nothing that the program has
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(budget.excess(), excess + 4 * MiB);
  program.free_all();
  budget.forget_native(native);
}

// The device that takes another's spilled memory is beyond its limit, and is either the first of
// the two to return or the last.
TEST_F(PauseTest, MemoryBeyondTheLimitOnAPeerReturns) {
  int devices = 0;
  ASSERT_CUDA(driver().cuDeviceGetCount(&devices));
  if (devices < 2) GTEST_SKIP() << "one device";
  std::array<CUcontext, 2> contexts{};
  ASSERT_CUDA(driver().cuCtxGetCurrent(&contexts[0]));
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&contexts[1], 0, 1));
  for (const std::size_t lender : {0u, 1u}) {
    MemorySettings chosen = limited_to(16 * MiB);
    chosen.spill.to = SpillTo::Peer;
    Program program{driver(), chosen};
    program.memory->contexts().began(contexts[1]);
    ASSERT_CUDA(driver().cuCtxSetCurrent(contexts[lender]));
    program.add(8 * MiB, false);
    ASSERT_CUDA(driver().cuCtxSetCurrent(contexts[1 - lender]));
    program.add(16 * MiB, false);
    program.add(4 * MiB, false);
    LocalBudget& budget = program.memory->devices().find(static_cast<int>(lender))->budget();
    const Size native = 8 * MiB;
    budget.note_native(native);
    const Size excess = budget.excess();
    ASSERT_EQ(excess, 4 * MiB);
    ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
    ASSERT_DONE(program.pauser->resume(Partly::No));
    EXPECT_EQ(budget.excess(), excess);
    EXPECT_FALSE(budget.commit(2 * MiB).ok());
    for (const Program::Block& block : program.blocks) {
      const bool is_lenders = block.address == program.blocks.front().address;
      ASSERT_CUDA(driver().cuCtxSetCurrent(contexts[is_lenders ? lender : 1 - lender]));
      expect_pattern(block.address, block.size, block.seed);
    }
    program.free_all();
    budget.forget_native(native);
    program.memory->contexts().ended(contexts[1]);
  }
  ASSERT_CUDA(driver().cuCtxSetCurrent(contexts[0]));
  ASSERT_CUDA(driver().cuCtxDestroy(contexts[1]));
}

TEST_F(PauseTest, MemoryThatCameBackAsFarAsTheHostCanBeExported) {
  Program program{driver(), limited_to(64 * MiB)};
  program.add(30 * MiB, false);
  program.add(30 * MiB, false);
  EXPECT_FALSE(program.pauser->has_left_on_host());
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  LocalBudget& budget = program.memory->devices().all().front()->budget();
  budget.note_native(32 * MiB);
  ASSERT_DONE(program.pauser->resume(Partly::Yes));
  EXPECT_TRUE(program.pauser->has_left_on_host());
  EXPECT_GE(program.pauser->on_host_bytes(), 20 * MiB);
  for (const Program::Block& block : program.blocks) {
    const auto lent = program.memory->lend(block.address, Lending::Secret{1});
    ASSERT_DONE(lent);
    const auto borrowed = program.memory->lending().borrow(lent->id);
    ASSERT_DONE(borrowed);
    for (const ChunkRef& chunk : borrowed->chunks) ASSERT_DONE(chunk->export_fd());
    program.memory->lending().give_back(lent->id);
  }
  // What has an IPC handle now cannot leave; but only some of it is on the device.
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GT(paused->stayed, 0u);
  EXPECT_LE(paused->stayed, 32 * MiB);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  budget.forget_native(32 * MiB);
}

// Otherwise nobody could use it until the program is resumed.
TEST_F(PauseTest, WhatTheProgramHasFreedLeavesTooEvenIfNothingElseDoes) {
  for (const bool ordered : {false, true}) {
    Program program{driver(), {}};
    program.add(8 * MiB, ordered);
    program.free_all();
    ASSERT_GT(program.on_device(), 0u) << "nothing is cached";
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    EXPECT_EQ(program.on_device(), 0u);
    ASSERT_DONE(program.pauser->resume(Partly::No));
  }
}

// Whichever call fails, the program continues with all its memory, or stays paused and can be
// resumed later.
TEST_F(PauseTest, LosesNothingWhicheverCallFails) {
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, {}, small_ring};
      program.take_a_little_of_everything();
      faulty.fail_call(number, fault);
      const auto paused = program.pauser->pause(timeout, Strict::No);
      const bool failed_before = faulty.faults() != 0;
      if (paused.ok()) {
        EXPECT_TRUE(program.calls.is_shut());
        for (int tries = 0; program.pauser->is_paused() && tries < 3; ++tries) {
          (void)program.pauser->resume(Partly::No);
        }
      } else {
        EXPECT_TRUE(failed_before) << paused.error().text();
      }
      untouched = faulty.faults() == 0;
      faulty.stop_failing();
      EXPECT_FALSE(program.pauser->is_paused());
      program.expect_to_go_on();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
}

// Restored memory is new memory, whose handles may differ.
std::string held_whatever_the_handles() {
  return std::regex_replace(held_by_the_process(), std::regex("chunk 0x[0-9a-f]+"), "chunk");
}

TEST_F(PauseTest, BeyondTheHostsBudgetIsRefusedBeforeAnythingIsPinned) {
  MemorySettings settings;
  settings.host = std::make_shared<LeasedBudget>(16 * MiB);
  Program program{driver(), settings};
  program.add(20 * MiB, true);
  const auto refused = program.pauser->pause(timeout, Strict::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_EQ(program.pauser->ready_bytes(), 0u);
  EXPECT_EQ(settings.host->committed_bytes(), 0u);
  program.expect_to_go_on();
}

TEST_F(PauseTest, PinnedMemoryCountsAgainstTheHostsBudgetUntilReleased) {
  MemorySettings settings;
  settings.host = std::make_shared<LeasedBudget>(64 * MiB);
  Program program{driver(), settings};
  program.add(20 * MiB, true);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GE(settings.host->committed_bytes(), paused->moved);
  EXPECT_LE(settings.host->committed_bytes(), 64 * MiB);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  while (program.pauser->look_after_stock(0, Duration{0})) continue;
  EXPECT_EQ(settings.host->committed_bytes(), 0u);
  program.expect_intact();
  program.free_all();
}

// Memory may be spilled to a device that the program does not use. It is served without a context.
TEST_F(PauseTest, PinsAndUnpinsHostMemoryAsUsualOnOneOfTwoDevices) {
  int devices = 0;
  ASSERT_CUDA(driver().cuDeviceGetCount(&devices));
  if (devices < 2) GTEST_SKIP() << "one device";
  CUcontext second = nullptr;
  ASSERT_CUDA(driver().cuDevicePrimaryCtxRetain(&second, 1));
  {
    const InContext in_second{driver(), second};
    MemorySettings settings;
    settings.spill.to = SpillTo::Peer;
    Program program{driver(), settings};
    program.add(16 * MiB, false);
    ASSERT_EQ(program.memory->devices().all().size(), 2u);
    ASSERT_EQ(program.memory->contexts().any_on(0), nullptr);
    for (int round = 0; round < 2; ++round) {
      ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
      ASSERT_DONE(program.pauser->resume(Partly::No));
      EXPECT_EQ(program.pauser->ready_bytes(), 16 * MiB);
    }
    program.expect_intact();
    while (program.pauser->look_after_stock(0, Duration{0})) continue;
    EXPECT_EQ(program.pauser->ready_bytes(), 0u);
    while (program.pauser->look_after_stock(8 * MiB, Duration{0})) continue;
    EXPECT_EQ(program.pauser->ready_bytes(), 8 * MiB);
    program.free_all();
  }
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(1));
}

TEST_F(PauseTest, ManyTimesLeakNothing) {
  Program program{driver(), {}};
  program.add(2 * MiB, false);
  program.add(128 * KiB, false);
  program.add(2 * MiB, true);
  std::string held;
  for (std::uint64_t i = 0; i < scaled(300); ++i) {
    ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
    ASSERT_DONE(program.pauser->resume(Partly::No));
    if (i == 2) held = held_whatever_the_handles();
  }
  EXPECT_EQ(held_whatever_the_handles(), held);
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseTest, SpilledMemorySurvivesItToo) {
  MemorySettings settings;
  settings.limit = SizeLimit::of_bytes(16 * MiB);
  settings.spill = {SpillTo::Host, SizeLimit::of_bytes(64 * MiB)};
  settings.compact = Compact::Off;  // its stream would live as long as the context
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
    ASSERT_DONE(program.pauser->resume(Partly::No));
    program.expect_intact();
  }
  program.free_all();
}

}  // namespace
}  // namespace cuvmm::test
