// SPDX-License-Identifier: Apache-2.0
// Chunks that the program creates itself, which migrate between the device and other memory.
#include "spilled_chunks.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST_F(SpilledChunks, ComeInAndOthersGoOut) {
  Program program{driver(), settings()};
  OwnVirtualMemory own{program, 64 * MiB};
  own.add(0, 2 * granule);
  own.add(2 * granule, 2 * granule);
  const Handle aliased = own.add(4 * granule, 4 * granule);
  own.map(16 * granule, 4 * granule, aliased);
  own.allow(16 * granule, 4 * granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  fill_pattern(own.address(), 4 * granule, 5);
  fill_pattern(own.address() + 4 * granule, 4 * granule, 6);
  Mover mover{program};
  for (int round = 0; round < 4; ++round) {
    const auto moved = mover.move_all();
    EXPECT_EQ(moved.in, 4 * granule);
    EXPECT_EQ(moved.out, 4 * granule);
    EXPECT_EQ(program.chunks->is_far(aliased), round % 2 == 1);
    EXPECT_EQ(native(program), 4 * granule);
    EXPECT_EQ(spilled(program), 4 * granule);
    expect_pattern(own.address(), 4 * granule, 5);
    expect_pattern(own.address() + 4 * granule, 4 * granule, 6);
    expect_pattern(own.address() + 16 * granule, 4 * granule, 6);
    EXPECT_EQ(own.access(16 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(own.backing(4 * granule), own.backing(16 * granule));
    EXPECT_EQ(program.chunks->handle_of(aliased), own.backing(4 * granule));
    if (round % 2 == 1) pause_and_resume(program);
  }
}

TEST_F(SpilledChunks, GoOutAlsoIfTheProgramHasReleasedThem) {
  Program program{driver(), settings()};
  OwnVirtualMemory own{program, 64 * MiB};
  own.release(own.add(0, 2 * granule));
  fill_pattern(own.address(), 2 * granule, 7);
  Mover mover{program};
  EXPECT_EQ(mover.move_all().out, 2 * granule);
  EXPECT_EQ(native(program), 0U);
  expect_pattern(own.address(), 2 * granule, 7);
  pause_and_resume(program);
  EXPECT_EQ(mover.move_all().in, 2 * granule);
  EXPECT_EQ(native(program), 2 * granule);
  expect_pattern(own.address(), 2 * granule, 7);
}

TEST_F(SpilledChunks, AreNotMovedWhereAPauseWouldLeaveThem) {
  Program program{driver(), settings()};
  OwnVirtualMemory own{program, 64 * MiB};
  own.add(0, granule);
  EXPECT_EQ(held(program).size(), 1U);
  program.chunks->pin(own.address(), 1, pin::dma_buf);
  EXPECT_EQ(held(program).size(), 0U);
  own.map(4 * granule, granule, own.create(granule));
  EXPECT_EQ(held(program).size(), 0U) << "nobody may access it";
  own.allow(4 * granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(held(program).size(), 0U);
  own.allow(4 * granule, granule);
  EXPECT_EQ(held(program).size(), 1U);
}

TEST_F(SpilledChunks, HotOnesReplaceColdOnes) {
  constexpr Size block = 64 * MiB;
  Program program{driver(), settings(2 * block, 4 * block)};
  OwnVirtualMemory own{program, 4 * block};
  own.add(0, block);
  own.add(block, block);
  const Handle hot = own.add(3 * block, block);
  fill_pattern(own.address(), 2 * block, 1);
  fill_pattern(own.address() + 3 * block, block, 2);
  ASSERT_TRUE(program.chunks->is_far(hot));
  LastUses uses;
  Placement placement{parts_of(program), uses};
  std::uint64_t clock = 1'000'000'000'000;
  for (int i = 0; i < 60 && program.chunks->is_far(hot); ++i) {
    uses.begin_next_moment();
    uses.note(own.address() + 3 * block);
    placement.step(device_of(program), clock += 100'000'000);
  }
  EXPECT_FALSE(program.chunks->is_far(hot));
  EXPECT_EQ(native(program), block);
  EXPECT_EQ(spilled(program), 2 * block);
  expect_pattern(own.address(), 2 * block, 1);
  expect_pattern(own.address() + 3 * block, block, 2);
}

// What the node service may ask for.
TEST_F(SpilledChunks, CountAsColdOnceTheProgramHasNotUsedThem) {
  BoundedLessor lessor{64 * granule};
  Program program{driver(), leased_settings(lessor)};
  OwnVirtualMemory own{program, 64 * MiB};
  own.add(0, 2 * granule);
  own.add(8 * granule, 2 * granule);
  fill_pattern(own.address(), 2 * granule, 1);
  fill_pattern(own.address() + 8 * granule, 2 * granule, 2);
  LastUses uses;
  Placement placement{parts_of(program), uses};
  std::uint64_t clock = 1'000'000'000'000;
  for (int i = 0; i < 60; ++i) {
    uses.begin_next_moment();
    placement.step(device_of(program), clock += 100'000'000);
    uses.note(own.address() + 8 * granule);
  }
  EXPECT_EQ(placement.cold(device_of(program)), 2 * granule);
  const auto moved = placement.move_out(device_of(program), unlimited, Duration{1'000'000});
  ASSERT_DONE(moved);
  EXPECT_EQ(*moved, 2 * granule);
  EXPECT_EQ(spilled(program), 2 * granule);
  EXPECT_EQ(native(program), 2 * granule);
  expect_pattern(own.address(), 2 * granule, 1);
  expect_pattern(own.address() + 8 * granule, 2 * granule, 2);
}

// A tensor may reach over several chunks, and calls name only its beginning.
TEST_F(SpilledChunks, AreInUseWithTheOneBeforeThemUnlessNamedThemselves) {
  BoundedLessor lessor{64 * granule};
  Program program{driver(), leased_settings(lessor)};
  OwnVirtualMemory own{program, 64 * MiB};
  for (Size i = 0; i < 4; ++i) own.add(i * granule, granule);
  LastUses uses;
  Placement placement{parts_of(program), uses};
  std::uint64_t clock = 1'000'000'000'000;
  for (int i = 0; i < 60; ++i) {
    uses.begin_next_moment();
    placement.step(device_of(program), clock += 100'000'000);
    uses.note(own.address());
    if (i == 12) uses.note(own.address() + 2 * granule);  // another tensor, long ago
  }
  EXPECT_EQ(placement.cold(device_of(program)), 2 * granule);
}

// A chunk near, one far, with an alias each, and one that the program has released.
struct ChunksEverywhere {
  static constexpr Size granule = 2 * MiB;
  explicit ChunksEverywhere(Program& program) : chunks(*program.chunks), own(program, 64 * MiB) {
    add(0, 2 * granule, 7);
    own.release(own.add(4 * granule, granule));
    fill_pattern(own.address() + 4 * granule, granule, 8);
    add(8 * granule, 3 * granule, 9);
  }
  void add(Size at, Size size, std::uint64_t seed) {
    const auto chunk = own.add(at, size);
    own.map(at + 16 * granule, size, chunk);
    own.allow(at + 16 * granule, size, CU_MEM_ACCESS_FLAGS_PROT_READ);
    fill_pattern(own.address() + at, size, seed);
  }
  void expect_intact() {
    expect_pattern(own.address(), 2 * granule, 7);
    expect_pattern(own.address() + 16 * granule, 2 * granule, 7);
    expect_pattern(own.address() + 4 * granule, granule, 8);
    expect_pattern(own.address() + 8 * granule, 3 * granule, 9);
    expect_pattern(own.address() + 24 * granule, 3 * granule, 9);
    EXPECT_EQ(own.access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(own.access(16 * granule), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(own.backing(0), own.backing(16 * granule));
    EXPECT_EQ(own.backing(8 * granule), own.backing(24 * granule));
  }
  ProgramChunks& chunks;
  OwnVirtualMemory own;
};

// Also where that call and all later ones fail, so that the driver maps neither chunk for a time.
TEST_F(SpilledChunks, LoseNothingWhicheverCallOfAMoveFails) {
  enum class Failing : std::uint8_t { Once, FromThereOn };
  const std::string held_before = held_by_the_process();
  int stuck = 0;
  for (const auto& [failing, fault] : {std::pair{Failing::Once, CUDA_ERROR_UNKNOWN},
                                       std::pair{Failing::Once, CUDA_ERROR_OUT_OF_MEMORY},
                                       std::pair{Failing::FromThereOn, CUDA_ERROR_UNKNOWN}}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) +
                   (failing == Failing::Once ? " fails with " : " and all later fail with ") +
                   name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, settings(3 * granule)};
      {
        ChunksEverywhere everywhere{program};
        ASSERT_EQ(spilled(program), 3 * granule);
        Mover mover{program};
        if (failing == Failing::Once) {
          faulty.fail_call(number, fault);
        } else {
          faulty.fail_from(number, fault, Call::cuStreamCreate);  // of the migration
        }
        (void)mover.placement.change(device_of(program), all_places(program));
        if (mover.placement.is_stuck()) {
          ++stuck;
          EXPECT_TRUE(program.calls.is_shut());
          mover.placement.step(device_of(program), now_ns());
          EXPECT_TRUE(mover.placement.is_stuck()) << "the driver still refuses";
        }
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        retry_releases();
        if (mover.placement.is_stuck()) mover.placement.step(device_of(program), now_ns());
        EXPECT_FALSE(mover.placement.is_stuck());
        EXPECT_FALSE(program.calls.is_shut());
        everywhere.expect_intact();
        EXPECT_LE(native(program), 3 * granule);
        EXPECT_LE(spilled(program), 6 * granule);
        pause_and_resume(program);
        everywhere.expect_intact();
        (void)mover.move_all();
        everywhere.expect_intact();
      }
      EXPECT_EQ(native(program), 0U);
      EXPECT_EQ(spilled(program), 0U);
      EXPECT_EQ(retry_releases(), 0U);
      EXPECT_TRUE(program.chunks->is_empty());
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  EXPECT_GT(stuck, 0);
  EXPECT_EQ(held_by_the_process(), held_before);
}

TEST_F(SpilledChunks, LoseNothingWhicheverCallOfAPauseFails) {
  const std::string held_before = held_by_the_process();
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = sweep_start(); !untouched && number < most_calls_of_a_scenario;
         number += sweep_step()) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      FaultyDriver faulty{driver()};
      Program program{faulty, settings(3 * granule)};
      {
        ChunksEverywhere everywhere{program};
        Mover mover{program};
        (void)mover.move_all();
        faulty.fail_call(number, fault);
        (void)program.pauser->pause(timeout, Strict::No);
        for (int tries = 0; program.pauser->is_paused() && tries < 3; ++tries) {
          (void)program.pauser->resume(Partly::No);
        }
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        EXPECT_FALSE(program.pauser->is_paused());
        EXPECT_FALSE(program.calls.is_shut());
        everywhere.expect_intact();
        EXPECT_EQ(native(program), 3 * granule);
        EXPECT_EQ(spilled(program), 3 * granule);
      }
      EXPECT_EQ(retry_releases(), 0U);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
  EXPECT_EQ(held_by_the_process(), held_before);
}

// The other device's memory is given back to it by a pause, and used again after it.
TEST_F(SpilledChunks, OnAPeerLeaveItAndReturnThere) {
  int devices = 0;
  ASSERT_CUDA(driver().cuDeviceGetCount(&devices));
  if (devices < 2) GTEST_SKIP() << "one device";
  MemorySettings chosen = settings(2 * granule);
  chosen.spill.to = SpillTo::Peer;
  Program program{driver(), chosen};
  OwnVirtualMemory own{program, 32 * MiB};
  own.add(0, 2 * granule);
  const Handle chunk = own.add(2 * granule, 2 * granule);
  ASSERT_TRUE(program.chunks->is_far(chunk));
  fill_pattern(own.address(), 4 * granule, 3);
  const auto paused = program.pauser->pause(timeout, Strict::Yes);
  ASSERT_DONE(paused);
  EXPECT_EQ(paused->moved, 4 * granule);
  EXPECT_EQ(spilled(program), 0U);
  ASSERT_DONE(program.pauser->resume(Partly::No));
  EXPECT_EQ(spilled(program), 2 * granule);
  EXPECT_EQ(native(program), 2 * granule);
  expect_pattern(own.address(), 4 * granule, 3);
}

}  // namespace
}  // namespace cuvmm::test
