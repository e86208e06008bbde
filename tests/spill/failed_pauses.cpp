// SPDX-License-Identifier: Apache-2.0
// Pauses that fail once memory has left, when others may have taken that memory, and resumes that
// find room on one device only.
#include <gtest/gtest.h>

#include "paused_program.hpp"

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
  static void set_limit(Program& program, Size limit) {
    device_of(program).budget().set_limit(limit);
  }
};

TEST_F(FailedPauses, UnusedHostMemoryIsReleasedAfterAPartialResume) {
  const MemorySettings chosen = settings();
  Program program{driver(), chosen, small_ring};
  program.add(30 * MiB, false);
  program.add(30 * MiB, false);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::No));
  set_limit(program, 32 * MiB);
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
    devices_of_program[full]->budget().set_limit(4 * MiB);
    const auto refused = program.pauser->resume(Partly::No);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
    EXPECT_EQ(in_use(0), 0u);
    EXPECT_EQ(in_use(1), 0u);
    devices_of_program[full]->budget().set_limit(whole);
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
