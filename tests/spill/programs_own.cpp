// SPDX-License-Identifier: Apache-2.0
// Pauses of programs that manage virtual memory themselves.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "own_virtual_memory.hpp"
#include "support/fault_sweep.hpp"

namespace cuvmm::test {
namespace {

constexpr Size granule = 2 * MiB;

class PauseOfOwnMemory : public PauseTest {
 protected:
  static void pause_and_resume(Program& program, Size expected) {
    const Size before = memory_info().free;
    const auto paused = program.pauser->pause(timeout, Strict::Yes);
    ASSERT_DONE(paused);
    EXPECT_EQ(paused->moved, expected);
    EXPECT_GE(memory_info().free, before + expected);
    const auto resumed = program.pauser->resume(Partly::No);
    ASSERT_DONE(resumed);
    EXPECT_EQ(resumed->moved, expected);
    EXPECT_FALSE(program.calls.is_shut());
  }
};

TEST_F(PauseOfOwnMemory, ItLeavesAndComesBackWithItsContents) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  own.add(0, 3 * granule);
  own.add(3 * granule, granule);
  own.add(8 * granule, 5 * granule);  // behind a gap
  fill_pattern(own.address(), 4 * granule, 1);
  fill_pattern(own.address() + 8 * granule, 5 * granule, 2);
  for (int round = 0; round < 2; ++round) {
    pause_and_resume(program, 9 * granule);
    expect_pattern(own.address(), 4 * granule, 1);
    expect_pattern(own.address() + 8 * granule, 5 * granule, 2);
  }
}

TEST_F(PauseOfOwnMemory, BesideServedMemory) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, 2 * granule);
  fill_pattern(own.address(), 2 * granule, 1);
  program.take_some_of_everything();
  const auto paused = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_DONE(paused);
  EXPECT_GT(paused->moved, 2 * granule);
  EXPECT_EQ(program.on_device(), 0u);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  expect_pattern(own.address(), 2 * granule, 1);
  program.expect_intact();
  program.free_all();
}

TEST_F(PauseOfOwnMemory, TheHandleStaysValid) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  const auto chunk = own.add(0, granule);
  fill_pattern(own.address(), granule, 1);
  pause_and_resume(program, granule);
  EXPECT_EQ(program.chunks->handle_of(chunk), own.backing(0));
  EXPECT_EQ(program.chunks->retain(own.address() + 5), chunk);
  own.map(4 * granule, granule, chunk);
  own.allow(4 * granule, granule);
  expect_pattern(own.address() + 4 * granule, granule, 1);
  own.release(chunk);
  EXPECT_EQ(program.chunks->handle_of(chunk), own.backing(0)) << "it was retained once more";
  program.chunks->release(chunk);
}

// The driver may give the number of a chunk that has left to a new one.
TEST_F(PauseOfOwnMemory, NoTwoChunksHaveOneHandle) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 64 * MiB};
  std::set<CUmemGenericAllocationHandle> handles;
  for (Size at = 0; at < 8; ++at) handles.insert(own.add(at * granule, granule));
  pause_and_resume(program, 8 * granule);
  for (Size at = 8; at < 24; ++at) {
    const auto chunk = own.add(at * granule, granule);
    EXPECT_TRUE(handles.insert(chunk).second) << chunk;
    EXPECT_EQ(program.chunks->handle_of(chunk), own.backing(at * granule));
  }
  pause_and_resume(program, 24 * granule);
}

TEST_F(PauseOfOwnMemory, AReleasedHandleDoesNotKeepItAndAMappingDoes) {
  Program program{driver(), {}};
  const Size at_first = memory_info().free;
  {
    OwnVirtualMemory own{program, 8 * MiB};
    own.release(own.add(0, granule));
    fill_pattern(own.address(), granule, 1);
    for (int round = 0; round < 2; ++round) {
      pause_and_resume(program, granule);
      expect_pattern(own.address(), granule, 1);
    }
    const auto again = program.chunks->retain(own.address());
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(program.chunks->handle_of(*again), own.backing(0));
    EXPECT_FALSE(program.chunks->release(*again).is_for_driver);
  }
  EXPECT_EQ(memory_info().free, at_first);
  EXPECT_TRUE(program.chunks->is_empty());
}

TEST_F(PauseOfOwnMemory, AliasesAndAccessAreRestored) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  const auto chunk = own.add(0, granule);
  own.map(4 * granule, granule, chunk);
  own.allow(4 * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  own.map(6 * granule, granule, chunk);  // open to nobody
  fill_pattern(own.address(), granule, 1);
  pause_and_resume(program, granule);
  expect_pattern(own.address(), granule, 1);
  expect_pattern(own.address() + 4 * granule, granule, 1);
  EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(own.access(4 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(own.access(6 * granule), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(own.backing(0), own.backing(6 * granule));
}

TEST_F(PauseOfOwnMemory, WhatCannotLeaveStaysAndIsNamed) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 32 * MiB};
  const auto is_left = [&](const char* why) {
    const auto strict = program.pauser->pause(timeout, Strict::Yes);
    EXPECT_FALSE(strict.ok());
    const auto paused = program.pauser->pause(timeout, Strict::No);
    ASSERT_DONE(paused);
    EXPECT_EQ(paused->stayed, granule);
    EXPECT_NE(std::strstr(paused->why, why), nullptr) << paused->why;
    ASSERT_DONE(program.pauser->resume(Partly::No));
  };
  const auto unmapped = own.create(granule);
  is_left("not mapped it");
  own.map(0, granule, unmapped);
  is_left("not made it accessible");
  own.allow(0, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  is_left("not made it accessible");
  own.allow(0, granule);
  pause_and_resume(program, granule);
  program.chunks->pin(own.address(), 1, pin::exported);
  is_left("another process holds it");
}

TEST_F(PauseOfOwnMemory, TheLimitCountsItOnlyWhileItIsThere) {
  MemorySettings settings;
  settings.limit = SizeLimit::of_bytes(64 * MiB);
  Program program{driver(), settings};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  EXPECT_EQ(program.memory->counters(0).native, granule);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
  EXPECT_EQ(program.memory->counters(0).native, 0u);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(program.memory->counters(0).native, granule);
}

TEST_F(PauseOfOwnMemory, WithoutRoomOnTheDeviceItStaysPausedOrResumesPartly) {
  Program program{driver(), {}};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, 2 * granule);
  fill_pattern(own.address(), 2 * granule, 1);
  ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
  std::vector<CUdeviceptr> others;
  for (Size size = memory_info().free; size >= granule; size /= 2) {
    CUdeviceptr other = 0;
    while (driver().cuMemAlloc(&other, size) == CUDA_SUCCESS) others.push_back(other);
  }
  const auto refused = program.pauser->resume(Partly::No);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.pauser->is_paused());
  const auto partly = program.pauser->resume(Partly::Yes);
  ASSERT_DONE(partly);
  EXPECT_EQ(partly->stayed, 2 * granule);
  expect_pattern(own.address(), 2 * granule, 1);
  for (const CUdeviceptr other : others) EXPECT_CUDA(driver().cuMemFree(other));
  ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(program.pauser->paused_bytes(), 0u);
  expect_pattern(own.address(), 2 * granule, 1);
}

// A chunk in each state: referred to once, several times, and not at all, with an alias.
struct VariousChunks {
  explicit VariousChunks(Program& program) : chunks(*program.chunks), own(program, 64 * MiB) {
    own.add(0, granule);
    const auto aliased = own.add(granule, 3 * granule);
    own.map(8 * granule, 3 * granule, aliased);
    own.allow(8 * granule, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    own.release(own.add(4 * granule, granule));
    fill_pattern(own.address(), granule, 7);
    fill_pattern(own.address() + granule, 3 * granule, 8);
    fill_pattern(own.address() + 4 * granule, granule, 9);
  }
  void expect_intact() {
    expect_pattern(own.address(), granule, 7);
    expect_pattern(own.address() + granule, 3 * granule, 8);
    expect_pattern(own.address() + 4 * granule, granule, 9);
    expect_pattern(own.address() + 8 * granule, 3 * granule, 8);
    EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(own.access(8 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
    for (const Size at : {Size{0}, granule, 4 * granule, 8 * granule}) expect_named(at);
  }
  // A reference by address is to the chunk that is mapped there.
  void expect_named(Size at) {
    auto name = chunks.retain(own.address() + at);
    if (!name) {
      CUmemGenericAllocationHandle handle = 0;
      ASSERT_CUDA(driver().cuMemRetainAllocationHandle(
          &handle, reinterpret_cast<void*>(own.address() + at)));
      name = chunks.retained(handle, own.address() + at);
    }
    EXPECT_EQ(chunks.handle_of(*name), own.backing(at)) << "at " << at / granule;
    const auto released = chunks.release(*name);
    if (released.is_for_driver) {
      EXPECT_CUDA(driver().cuMemRelease(released.handle));
    }
  }
  ProgramChunks& chunks;
  OwnVirtualMemory own;
};

TEST_F(PauseOfOwnMemory, LosesNothingWhicheverCallFails) {
  const std::string held_before = held_by_the_process();
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, {}};
      {
        VariousChunks chunks{program};
        faulty.fail_call(number, fault);
        const auto paused = program.pauser->pause(timeout, Strict::No);
        if (paused.ok()) {
          for (int tries = 0; program.pauser->is_paused() && tries < 3; ++tries) {
            (void)program.pauser->resume(Partly::No);
          }
        } else {
          EXPECT_NE(faulty.faults(), 0u) << paused.error().text();
        }
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        EXPECT_FALSE(program.pauser->is_paused());
        EXPECT_FALSE(program.calls.is_shut());
        chunks.expect_intact();
        // And it can still be paused.
        ASSERT_DONE(program.pauser->pause(timeout, Strict::Yes));
        ASSERT_DONE(program.pauser->resume(Partly::No));
        chunks.expect_intact();
      }
      EXPECT_EQ(retry_releases(), 0u);
      EXPECT_TRUE(program.chunks->is_empty());
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  EXPECT_EQ(held_by_the_process(), held_before);
}

}  // namespace
}  // namespace cuvmm::test
