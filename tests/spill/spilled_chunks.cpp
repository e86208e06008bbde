// SPDX-License-Identifier: Apache-2.0
// Chunks that the program creates itself, spilled at their creation or moved out later.
#include <cstring>

#include "spilled_chunks.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST_F(SpilledChunks, HoldWhatTheLimitHasNoRoomFor) {
  Program program{driver(), settings()};
  {
    OwnVirtualMemory own{program, 64 * MiB};
    own.add(0, 2 * granule);
    const Handle chunk = own.add(2 * granule, 4 * granule);
    EXPECT_EQ(native(program), 2 * granule);
    EXPECT_EQ(spilled(program), 4 * granule);
    EXPECT_TRUE(program.chunks->is_far(chunk));
    fill_pattern(own.address(), 6 * granule, 1);
    expect_pattern(own.address(), 6 * granule, 1);
    const auto asked = program.chunks->asked_properties(chunk);
    ASSERT_TRUE(asked.has_value());
    EXPECT_EQ(asked->location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EXPECT_EQ(asked->location.id, 0);
    own.add(6 * granule, 2 * granule);
    EXPECT_EQ(native(program), 4 * granule) << "smaller ones still fit";
  }
  EXPECT_EQ(spilled(program), 0U);
  EXPECT_EQ(native(program), 0U);
  EXPECT_TRUE(program.chunks->is_empty());
}

// The limit lets them all in, and the driver has no memory.
TEST_F(SpilledChunks, HoldWhatTheDeviceHasNoRoomFor) {
  MemorySettings chosen = settings();
  chosen.limit = SizeLimit::none();
  Program program{driver(), chosen};
  ProgramCreation creation{driver(), *program.memory, *program.chunks};
  Handle chunk = 0;
  EXPECT_CUDA(
      creation.create(&chunk, granule, plain(), [](Handle*) { return CUDA_ERROR_OUT_OF_MEMORY; }));
  EXPECT_TRUE(program.chunks->is_far(chunk));
  EXPECT_EQ(spilled(program), granule);
  EXPECT_FALSE(program.chunks->release(chunk).is_for_driver);
  EXPECT_EQ(spilled(program), 0U);
}

TEST_F(SpilledChunks, AreRefusedBeyondTheBoundOfSpilling) {
  Program program{driver(), settings(2 * granule, 3 * granule)};
  OwnVirtualMemory own{program, 64 * MiB};
  own.add(0, 2 * granule);
  own.add(2 * granule, 2 * granule);
  Handle chunk = 0;
  EXPECT_EQ(answer_of_creation(program, &chunk, 2 * granule, plain()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CUDA(answer_of_creation(program, &chunk, granule, plain()));
  EXPECT_FALSE(program.chunks->release(chunk).is_for_driver);
  EXPECT_EQ(native(program), 2 * granule);
}

TEST_F(SpilledChunks, AreOnlyThoseWhosePropertiesAnyMemoryHas) {
  Program program{driver(), settings(granule)};
  OwnVirtualMemory own{program, 8 * MiB};
  own.add(0, granule);
  CUmemAllocationProp for_other_hosts = plain();
  for_other_hosts.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CUmemAllocationProp compressed = plain();
  compressed.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  CUmemAllocationProp for_tiles = plain();
  for_tiles.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  Handle chunk = 0;
  for (const auto& properties : {for_other_hosts, compressed, for_tiles}) {
    EXPECT_EQ(answer_of_creation(program, &chunk, granule, properties), CUDA_ERROR_OUT_OF_MEMORY);
  }
  CUmemAllocationProp as_pytorch = exportable();
  as_pytorch.allocFlags.gpuDirectRDMACapable = 1;
  for (const auto& properties : {plain(), as_pytorch}) {
    EXPECT_CUDA(answer_of_creation(program, &chunk, granule, properties));
    const auto asked = program.chunks->asked_properties(chunk);
    ASSERT_TRUE(asked.has_value());
    EXPECT_EQ(std::memcmp(&*asked, &properties, sizeof properties), 0);
    EXPECT_FALSE(program.chunks->release(chunk).is_for_driver);
  }
}

TEST_F(SpilledChunks, HaveSeveralAddressesAndReferences) {
  Program program{driver(), settings(granule)};
  OwnVirtualMemory own{program, 32 * MiB};
  own.add(0, granule);
  const Handle chunk = own.add(granule, granule);
  own.map(4 * granule, granule, chunk);
  own.allow(4 * granule, granule);
  fill_pattern(own.address() + granule, granule, 3);
  expect_pattern(own.address() + 4 * granule, granule, 3);
  EXPECT_EQ(program.chunks->retain(own.address() + granule), chunk);
  own.release(chunk);
  EXPECT_EQ(program.chunks->handle_of(chunk), own.backing(granule));
  EXPECT_FALSE(program.chunks->release(chunk).is_for_driver);
  expect_pattern(own.address() + granule, granule, 3);
  const auto again = program.chunks->retain(own.address() + 4 * granule);
  ASSERT_TRUE(again.has_value());
  EXPECT_NE(*again, own.backing(granule)) << "the store's handle is not the program's";
  EXPECT_EQ(program.chunks->handle_of(*again), own.backing(granule));
  EXPECT_FALSE(program.chunks->release(*again).is_for_driver);
}

TEST_F(SpilledChunks, StayOnTheHostDuringAPause) {
  Program program{driver(), settings(2 * granule)};
  OwnVirtualMemory own{program, 64 * MiB};
  own.add(0, 2 * granule);
  const Handle chunk = own.add(2 * granule, 2 * granule);
  fill_pattern(own.address(), 2 * granule, 4);
  fill_pattern(own.address() + 2 * granule, 2 * granule, 5);
  for (Size round = 0; round < 2; ++round) {
    const auto paused = program.pauser->pause(timeout, Strict::Yes);
    ASSERT_DONE(paused);
    EXPECT_EQ(paused->moved, 2 * granule);
    EXPECT_EQ(paused->stayed, 0U);
    ASSERT_DONE(program.pauser->resume(Partly::No));
    expect_pattern(own.address(), 2 * granule, 4);
    expect_pattern(own.address() + 2 * granule, 2 * granule, 5);
    own.map((8 + 2 * round) * granule, 2 * granule, chunk);
    own.allow((8 + 2 * round) * granule, 2 * granule);
    expect_pattern(own.address() + (8 + 2 * round) * granule, 2 * granule, 5);
  }
}

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

// Grants leases up to a number of bytes.
class BoundedLessor final : public Lessor {
 public:
  explicit BoundedLessor(Size most) : left_(most) {}
  void begin(LeasedBudget& budget, const Uuid& device, Size) override {
    if (device != the_host) budget.lease_from(*this);
  }
  Extended extend(LeasedBudget& budget, Size size) override {
    if (size > left_) return Extended::No;
    left_ -= size;
    budget.add_lease(size);
    return Extended::Yes;
  }
  bool wait_for(LeasedBudget& budget, Size size, std::uint64_t, std::uint64_t) override {
    ++waits;
    return extend(budget, size) == Extended::Yes;
  }
  int waits = 0;

 private:
  Size left_;
};

TEST_F(SpilledChunks, AreThoseThatTheLeaseHasNoRoomFor) {
  BoundedLessor lessor{2 * granule};
  MemorySettings chosen = settings();
  chosen.limit = SizeLimit::none();
  chosen.lessor = &lessor;
  chosen.node_wait = Duration{1'000};
  Program program{driver(), chosen};
  OwnVirtualMemory own{program, 32 * MiB};
  const Handle near = own.add(0, 2 * granule);
  const Handle far = own.add(2 * granule, granule);
  EXPECT_FALSE(program.chunks->is_far(near));
  EXPECT_TRUE(program.chunks->is_far(far));
  EXPECT_EQ(lessor.waits, 0) << "spilling takes less time";
  Handle chunk = 0;
  CUmemAllocationProp for_tiles = plain();
  for_tiles.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  EXPECT_EQ(answer_of_creation(program, &chunk, granule, for_tiles), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(lessor.waits, 0);
  own.remove(0, near);
  EXPECT_CUDA(answer_of_creation(program, &chunk, 2 * granule, for_tiles));
  const auto released = program.chunks->release(chunk);
  EXPECT_CUDA(driver().cuMemRelease(released.handle));
}

// What the node's service may ask for.
TEST_F(SpilledChunks, CountAsColdOnceTheProgramHasNotUsedThem) {
  BoundedLessor lessor{64 * granule};
  MemorySettings chosen = settings();
  chosen.limit = SizeLimit::none();
  chosen.lessor = &lessor;
  Program program{driver(), chosen};
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
  MemorySettings chosen = settings();
  chosen.limit = SizeLimit::none();
  chosen.lessor = &lessor;
  Program program{driver(), chosen};
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

// Each driver call fails in turn. What is refused changes nothing.
TEST_F(SpilledChunks, AreCreatedOrRefusedWhicheverCallFails) {
  for (const CUresult fault : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
    bool untouched = false;
    for (std::uint64_t number = 1; !untouched && number < most_calls_of_a_scenario; ++number) {
      SCOPED_TRACE("driver call " + std::to_string(number) + " fails with " + name_of(fault));
      const std::string held_before = held_by_the_process();
      FaultyDriver faulty{driver()};
      {
        Program program{faulty, settings(granule)};
        OwnVirtualMemory own{program, 16 * MiB};
        own.add(0, granule);
        faulty.fail_call(number, fault);
        Handle chunk = 0;
        const CUresult answer = answer_of_creation(program, &chunk, granule, plain());
        untouched = faulty.faults() == 0;
        faulty.stop_failing();
        EXPECT_EQ(native(program), granule);
        if (answer == CUDA_SUCCESS) {
          EXPECT_EQ(spilled(program), granule);
          EXPECT_FALSE(program.chunks->release(chunk).is_for_driver);
        } else {
          EXPECT_FALSE(untouched);
        }
        EXPECT_EQ(spilled(program), 0U);
      }
      EXPECT_EQ(retry_releases(), 0U);
      EXPECT_EQ(held_by_the_process(), held_before);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(untouched);
  }
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

TEST_F(SpilledChunks, AreBroughtInToBeMadeExportable) {
  Program program{driver(), settings(2 * granule)};
  OwnVirtualMemory own{program, 32 * MiB};
  const Handle first = own.create(granule);
  own.map(0, granule, first);
  own.allow(0, granule);
  const Handle chunk = own.add(8 * granule, 2 * granule);
  fill_pattern(own.address() + 8 * granule, 2 * granule, 2);
  ASSERT_TRUE(program.chunks->is_far(chunk));
  const ProgramParts parts = parts_of(program);
  ChunkExchange exchange{parts};
  const auto refused = exchange.make_exportable(own.address() + 8 * granule, timeout);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::OutOfMemory);
  EXPECT_TRUE(program.chunks->is_far(chunk));
  expect_pattern(own.address() + 8 * granule, 2 * granule, 2);
  own.remove(0, first);
  ASSERT_DONE(exchange.make_exportable(own.address() + 8 * granule, timeout));
  EXPECT_FALSE(program.chunks->is_far(chunk));
  EXPECT_EQ(native(program), 2 * granule);
  EXPECT_EQ(spilled(program), 0U);
  expect_pattern(own.address() + 8 * granule, 2 * granule, 2);
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
