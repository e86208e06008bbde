// SPDX-License-Identifier: Apache-2.0
// Chunks that the program creates itself, spilled at their creation.
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
  // The driver supports no fabric, and says so first.
  EXPECT_EQ(answer_of_creation(program, &chunk, granule, for_other_hosts),
            CUDA_ERROR_NOT_SUPPORTED);
  for (const auto& properties : {compressed, for_tiles}) {
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

TEST_F(SpilledChunks, AreThoseThatTheLeaseHasNoRoomFor) {
  BoundedLessor lessor{2 * granule};
  MemorySettings chosen = leased_settings(lessor);
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

}  // namespace
}  // namespace cuvmm::test
