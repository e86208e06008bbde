// SPDX-License-Identifier: Apache-2.0
// Pauses that fail once memory has left, when others may have taken that memory, and resumes that
// find room on one device only.
#include <gtest/gtest.h>

#include "controlled_process.hpp"
#include "paused_program.hpp"
#include "support/faulty_driver.hpp"

namespace cuvmm::test {
namespace {

class FailedPauses : public PauseTest {
 protected:
  static constexpr Size whole = 64 * MiB;

  static MemorySettings settings(Size host = GiB) {
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(whole);
    chosen.host = std::make_shared<LeasedBudget>(host);
    return chosen;
  }
  // Other programs take the rest.
  static void leave(DeviceMemory& device, Size left) {
    device.budget().forget_native(device.budget().native_bytes());
    device.budget().note_native(whole - left);
  }
  static void leave(Program& program, Size left) { leave(device_of(program), left); }
  // As if its caller went away once some memory had left, and another program took that memory.
  struct InVain {
    InVain(Program& program, Size left) : program(program), left(left) {}
    PauseWatch watch() {
      return {.is_wanted = [this] { return is_wanted; }, .has_released = [this] { look(); }};
    }
    void look() {
      if (program.on_device() == held) return;
      leave(program, left);
      is_wanted = false;
    }
    Program& program;
    const Size left;
    const Size held = program.on_device();
    bool is_wanted = true;
  };
  static Result<PauseReport> pause_in_vain(Program& program, Size left) {
    InVain in_vain{program, left};
    return program.pauser->pause(timeout, Strict::No, in_vain.watch());
  }
};

TEST_F(FailedPauses, TheProgramContinuesWithHostMemoryIfOthersHaveTakenTheDevices) {
  Program program{driver(), settings()};
  program.add(30 * MiB, false);
  program.add(30 * MiB, true);
  const auto refused = pause_in_vain(program, 32 * MiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_FALSE(program.pauser->is_paused());
  EXPECT_FALSE(program.calls.is_shut());
  EXPECT_GT(program.pauser->paused_bytes(), 0u);
  program.expect_intact();

  leave(program, whole);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  program.expect_intact();
  program.free_all();
}

// The memory that is on the host belongs on the device, which still has no room for it.
TEST_F(FailedPauses, APartlyResumedProgramContinuesWhicheverChunkStays) {
  FaultyDriver faulty{driver()};
  Program program{faulty, settings()};
  for (int i = 0; i < 3; ++i) program.add(20 * MiB, true);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  leave(program, 24 * MiB);
  ASSERT_DONE(program.pauser->resume(Partly::Yes));
  EXPECT_GT(program.pauser->paused_bytes(), 0u);
  std::uint64_t stays = 1;
  for (;; ++stays) {
    const auto one_stays = [&] {
      faulty.fail_call(Call::cuMemUnmap, stays, CUDA_ERROR_UNKNOWN);
      return true;
    };
    const bool is_done = program.pauser->pause(timeout, Strict::No, {.may_move = one_stays}).ok();
    faulty.stop_failing();
    if (is_done) break;
    ASSERT_FALSE(program.pauser->is_paused()) << "chunk " << stays;
    EXPECT_FALSE(program.calls.is_shut());
    program.expect_intact();
  }
  EXPECT_GT(stays, 2u) << "there were several chunks";
  ASSERT_DONE(program.pauser->resume(Partly::Yes));
  program.expect_intact();
  program.free_all();
}

// The host has no room either for what its contents would lie in while the program runs.
TEST_F(FailedPauses, AProgramLeftPausedIsNotTakenForAPausedOne) {
  const MemorySettings chosen = settings(72 * MiB);
  Program program{driver(), chosen};
  program.add(30 * MiB, false);
  program.add(30 * MiB, true);
  ASSERT_FALSE(pause_in_vain(program, 4 * MiB).ok());
  EXPECT_TRUE(program.pauser->is_paused());
  EXPECT_TRUE(program.pauser->is_left_paused());

  const auto again = program.pauser->pause(timeout, Strict::No);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.calls.is_shut());

  leave(program, whole);
  const auto paused = program.pauser->pause(timeout, Strict::No);
  ASSERT_DONE(paused);
  EXPECT_GE(paused->moved, 60 * MiB);
  EXPECT_EQ(program.on_device(), 0u);
  EXPECT_FALSE(program.pauser->is_left_paused());
  ASSERT_DONE(program.pauser->resume(Partly::No));
  program.expect_intact();
  program.free_all();
}

// Nobody else may know that it is paused.
TEST_F(FailedPauses, TheUpkeepThreadResumesAProgramLeftPaused) {
  FaultyDriver faulty{driver()};
  // Never destroyed, since the upkeep thread goes on. It does not use the driver after shut_down().
  auto& program = *new Program{faulty, settings(72 * MiB)};
  auto& control = *new Control{
      ProgramParts{.driver = faulty, .memory = *program.memory, .calls = program.calls},
      *new EndingContexts, SizeLimit::none(), Duration{0}};
  program.add(30 * MiB, false);
  program.add(30 * MiB, true);
  bool stands_still = false;
  const auto others_come = [&] {
    if (stands_still) leave(program, 4 * MiB);
    return true;
  };
  const auto fail_halfway = [&] {
    faulty.fail_call(Call::cuMemUnmap, 2, CUDA_ERROR_UNKNOWN);
    stands_still = true;
    return true;
  };
  const PauseWatch watch{.is_wanted = others_come, .may_move = fail_halfway};
  ASSERT_FALSE(control.pause(timeout, Strict::No, watch).ok());
  EXPECT_TRUE(control.is_paused());
  EXPECT_TRUE(program.calls.is_shut());
  leave(program, whole);
  EXPECT_TRUE(comes_to_pass([&] { return !control.is_paused(); }));
  EXPECT_FALSE(program.calls.is_shut());
  program.expect_intact();
  program.free_all();
  EXPECT_TRUE(comes_to_pass([&] { return control.ready_bytes() == 0; }));
  control.shut_down();
  program.pauser.reset();
  program.clock->table().drop_events();
  program.memory.reset();
  program.clock.reset();
}

TEST_F(FailedPauses, UnusedHostMemoryIsReleasedAfterAPartialResume) {
  const MemorySettings chosen = settings();
  Program program{driver(), chosen, small_ring};
  program.add(30 * MiB, false);
  program.add(30 * MiB, false);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  leave(program, 32 * MiB);
  ASSERT_DONE(program.pauser->resume(Partly::Yes));
  program.expect_intact();
  while (program.pauser->look_after_stock(0, Duration{0})) continue;
  EXPECT_GT(chosen.host->committed_bytes(), 0u) << "the program still uses it";
  program.free_all();
  EXPECT_TRUE(program.memory->make_room());
  while (program.pauser->look_after_stock(0, Duration{0})) continue;
  EXPECT_EQ(chosen.host->committed_bytes(), 0u);
}

// Otherwise two paused programs could each keep one device's memory and wait for the other's.
TEST_F(FailedPauses, AResumeWithRoomOnOneOfTwoDevicesKeepsNone) {
  int devices = 0;
  ASSERT_CUDA(driver().cuDeviceGetCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs two devices";
  Program program{driver(), settings()};
  CUcontext first = nullptr;
  CUcontext other = nullptr;
  ASSERT_CUDA(driver().cuCtxGetCurrent(&first));
  program.add(16 * MiB, false);
  ASSERT_CUDA(driver().cuCtxCreate_v3020(&other, 0, 1));
  program.memory->contexts().began(other);
  program.add(16 * MiB, false);
  const auto devices_of_program = program.memory->devices().all();
  ASSERT_EQ(devices_of_program.size(), 2u);
  const auto in_use = [&](std::size_t i) {
    return devices_of_program[i]->chunk_counters().physical_in_use;
  };
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  for (const std::size_t full : {0u, 1u}) {
    leave(*devices_of_program[full], 4 * MiB);
    const auto refused = program.pauser->resume(Partly::No);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
    EXPECT_EQ(in_use(0), 0u);
    EXPECT_EQ(in_use(1), 0u);
    leave(*devices_of_program[full], whole);
  }
  const auto resumed = program.pauser->resume(Partly::No);
  ASSERT_DONE(resumed);
  EXPECT_GE(resumed->moved, 32 * MiB);
  for (const CUcontext context : {other, first}) {
    ASSERT_CUDA(driver().cuCtxSetCurrent(context));
    const Program::Block block = program.blocks.back();
    expect_pattern(block.address, block.size, block.seed);
    program.free(program.blocks.size() - 1);
  }
  program.memory->contexts().ended(other);
  ASSERT_CUDA(driver().cuCtxDestroy(other));
}

}  // namespace
}  // namespace cuvmm::test
