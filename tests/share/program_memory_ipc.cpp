// SPDX-License-Identifier: Apache-2.0
// IPC handles of memory that the program manages itself, as the hooks use them.
#include <gtest/gtest.h>

#include <cstring>

#include "ipc_world.hpp"
#include "spill/chunk_exchange.hpp"
#include "support/faulty_driver.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm::test {
namespace {

constexpr Size chunk_size = 2 * MiB;

class ProgramMemoryIpc : public DriverContract {
 protected:
  using Handle = CUmemGenericAllocationHandle;

  void SetUp() override {
    DriverContract::SetUp();
    world = std::make_unique<IpcWorld>(driver());
    ASSERT_CUDA(driver().cuMemAddressReserve(&address, 8 * chunk_size, 0, 0, 0));
  }
  void TearDown() override {
    while (!mapped.empty()) end(mapped.back().first);
    world.reset();
    EXPECT_EQ(retry_releases(), 0u);
    EXPECT_CUDA(driver().cuMemAddressFree(address, 8 * chunk_size));
    DriverContract::TearDown();
  }

  void add(Size at, CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
           int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = type;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    Handle handle = 0;
    ASSERT_CUDA(driver().cuMemCreate(&handle, chunk_size, &properties, 0));
    handle = world->chunks.created(handle, chunk_size, properties);
    map(at, handle);
    mapped.emplace_back(at, handle);
  }
  void map(Size at, Handle handle) {
    const CUdeviceptr where = address + at * chunk_size;
    ASSERT_CUDA(driver().cuMemMap(where, chunk_size, 0, world->chunks.handle_of(handle), 0));
    world->chunks.mapped(where, chunk_size, handle);
    const CUmemAccessDesc line{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ASSERT_CUDA(driver().cuMemSetAccess(where, chunk_size, &line, 1));
    world->chunks.set_access(where, chunk_size, {&line, 1});
  }
  void unmap(Size at) {
    const auto places = world->chunks.unmap(address + at * chunk_size, chunk_size);
    EXPECT_CUDA(driver().cuMemUnmap(address + at * chunk_size, chunk_size));
  }
  void end(Size at) {
    const auto found = std::find_if(mapped.begin(), mapped.end(),
                                    [&](const auto& one) { return one.first == at; });
    unmap(at);
    const auto released = world->chunks.release(found->second);
    if (released.is_for_driver) {
      EXPECT_CUDA(driver().cuMemRelease(released.handle));
    }
    mapped.erase(found);
  }
  Answer refusal(CUdeviceptr of) {
    CUipcMemHandle handle{};
    return world->ipc.handle_of(of, &handle);
  }

  void make_exportable(CUdeviceptr of) {
    CallBarrier calls{CallBarrier::Of::Calls};
    const ProgramParts parts{
        .driver = driver(), .memory = world->memory, .calls = calls, .chunks = &world->chunks};
    ChunkExchange exchange{parts};
    const auto made = exchange.make_exportable(of, std::chrono::seconds{60});
    ASSERT_TRUE(made.ok()) << made.error().text();
  }

  // By its handle, from pattern 5 to pattern 6.
  void expect_a_child_to_change(Size size) {
    Child child{"borrows"};
    lend_to(child, *world, address, size, 5);
    child.link().wait_for_signal();
    expect_pattern(address, size, 6);
    child.link().signal();
    EXPECT_EQ(child.wait(), 0);
  }

  std::unique_ptr<IpcWorld> world;
  CUdeviceptr address = 0;
  std::vector<std::pair<Size, Handle>> mapped;
};

TEST_F(ProgramMemoryIpc, ChunksSideBySideAreOneMemory) {
  for (const Size at : {0u, 1u, 2u, 4u}) add(at);
  expect_a_child_to_change(3 * chunk_size);
}

TEST_F(ProgramMemoryIpc, AHandleOfALaterMappingBeginsThere) {
  for (const Size at : {0u, 1u, 2u}) add(at);
  Child child{"borrows"};
  lend_to(child, *world, address + chunk_size, 2 * chunk_size, 5);
  child.link().wait_for_signal();
  expect_pattern(address + chunk_size, 2 * chunk_size, 6);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ProgramMemoryIpc, HandlesAreTheSameEachTimeAndWithinTheMapping) {
  for (const Size at : {0u, 1u}) add(at);
  const CUipcMemHandle first = world->handle_of(address);
  const CUipcMemHandle inner = world->handle_of(address + MiB);
  const CUipcMemHandle second = world->handle_of(address + chunk_size);
  EXPECT_EQ(std::memcmp(&first, &inner, sizeof first), 0);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

CHILD_ROLE(reads_both_chunks) {
  PrimaryContext context;
  IpcWorld world{driver()};
  for (const std::uint32_t second : {2u, 3u}) {
    const CUdeviceptr opened = world.open(link.receive<CUipcMemHandle>());
    EXPECT_EQ(read_word(opened), 1u);
    EXPECT_EQ(read_word(opened + chunk_size), second);
    EXPECT_EQ(world.ipc.close(opened), Answer{CUDA_SUCCESS});
  }
}

TEST_F(ProgramMemoryIpc, AChunkMappedTwiceIsLentWithWhatFollowsItThere) {
  for (const Size at : {0u, 1u, 4u}) add(at);
  map(3, mapped.front().second);
  write_word(address, 1);
  write_word(address + chunk_size, 2);
  write_word(address + 4 * chunk_size, 3);
  GIVEN(synchronize());
  Child child{"reads_both_chunks"};
  const CUipcMemHandle first = world->handle_of(address);
  const CUipcMemHandle second = world->handle_of(address + 3 * chunk_size);
  child.link().send(first);
  child.link().send(second);
  EXPECT_EQ(child.wait(), 0);
  unmap(3);
}

TEST_F(ProgramMemoryIpc, BorrowersKeepWhatTheProgramEnds) {
  add(0);
  Child child{"borrows"};
  lend_to(child, *world, address, chunk_size, 5);
  child.link().wait_for_signal();
  end(0);
  EXPECT_TRUE(world->chunks.is_empty());
  EXPECT_EQ(refusal(address), std::nullopt) << "it is not ours to answer";
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ProgramMemoryIpc, ChunksAreExportedOnceForAllBorrowers) {
  FaultyDriver counting{driver()};
  world = std::make_unique<IpcWorld>(counting.driver());
  const auto exports = [&] { return counting.count_of("cuMemExportToShareableHandle"); };
  for (const Size at : {0u, 1u}) add(at);
  world->handle_of(address);
  EXPECT_EQ(exports(), 2u) << "before anyone waits for it";
  expect_a_child_to_change(2 * chunk_size);
  expect_a_child_to_change(2 * chunk_size);
  EXPECT_EQ(exports(), 2u);
  for (const Size at : {0u, 1u}) end(at);
  world = std::make_unique<IpcWorld>(driver());
}

// A descriptor would keep the memory allocated.
TEST_F(ProgramMemoryIpc, NoDescriptorOutlivesItsChunk) {
  for (const Size at : {0u, 1u, 4u}) add(at);
  world->handle_of(address + 4 * chunk_size);  // the first one opens others too
  const int before = open_descriptors();
  world->handle_of(address);
  EXPECT_GE(open_descriptors(), before + 2);
  for (const Size at : {0u, 1u}) end(at);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ProgramMemoryIpc, ChunksThatCannotBeExportedAtOnceAreExportedLater) {
  FaultyDriver faulty{driver()};
  world = std::make_unique<IpcWorld>(faulty.driver());
  add(0);
  faulty.fail_call(Call::cuMemExportToShareableHandle, 1, CUDA_ERROR_OUT_OF_MEMORY);
  world->handle_of(address);
  EXPECT_EQ(faulty.faults(), 1u);
  expect_a_child_to_change(chunk_size);
  end(0);
  world = std::make_unique<IpcWorld>(driver());
}

CHILD_ROLE(finds_program_memory_freed) {
  PrimaryContext context;
  IpcWorld world{driver()};
  const auto handle = link.receive<CUipcMemHandle>();
  CUdeviceptr address = 0;
  EXPECT_EQ(world.ipc.open(&address, handle, lazily), Answer{CUDA_ERROR_NOT_PERMITTED});
}

TEST_F(ProgramMemoryIpc, OpeningWhatHasEndedIsNotPermitted) {
  for (const Size at : {0u, 1u}) add(at);
  Child child{"finds_program_memory_freed"};
  const CUipcMemHandle handle = world->handle_of(address);
  end(0);
  child.link().send(handle);
  EXPECT_EQ(child.wait(), 0);
}

// It may have been another block, which only happened to lie there.
TEST_F(ProgramMemoryIpc, AHandleLendsWhatLiesBeforeAChunkThatHasEnded) {
  for (const Size at : {0u, 1u, 2u}) add(at);
  fill_pattern(address, chunk_size, 5);
  ASSERT_CUDA(synchronize());
  Child child{"borrows"};
  const CUipcMemHandle handle = world->handle_of(address);
  end(1);
  child.link().send(handle);
  child.link().send(std::array<std::uint32_t, 2>{5, 6});
  child.link().send(Size{chunk_size});
  child.link().wait_for_signal();
  expect_pattern(address, chunk_size, 6);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(ProgramMemoryIpc, WithoutAHandleTypeItIsRefusedAsNatively) {
  add(0);
  add(1, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_EQ(refusal(address), Answer{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(refusal(address + chunk_size), Answer{CUDA_ERROR_INVALID_VALUE});
  end(1);
  EXPECT_EQ(refusal(address), Answer{CUDA_SUCCESS});
}

TEST_F(ProgramMemoryIpc, MadeExportableItIsTheSameMemoryInBothProcesses) {
  add(0, CU_MEM_HANDLE_TYPE_NONE);
  add(1);
  add(2, CU_MEM_HANDLE_TYPE_NONE);
  fill_pattern(address, 3 * chunk_size, 5);
  GIVEN(synchronize());
  make_exportable(address);
  expect_pattern(address, 3 * chunk_size, 5);
  expect_a_child_to_change(3 * chunk_size);
}

CHILD_ROLE(keeps_what_was_lent) {
  PrimaryContext context;
  IpcWorld world{driver()};
  const CUdeviceptr opened = world.open(link.receive<CUipcMemHandle>());
  link.signal();
  link.wait_for_signal();  // the owner has mapped another chunk there
  expect_pattern(opened, chunk_size, 5);
  EXPECT_EQ(world.ipc.close(opened), Answer{CUDA_SUCCESS});
}

TEST_F(ProgramMemoryIpc, BorrowersOfAnExchangedChunkKeepItWhenAnotherTakesItsPlace) {
  add(0, CU_MEM_HANDLE_TYPE_NONE);
  fill_pattern(address, chunk_size, 5);
  GIVEN(synchronize());
  make_exportable(address);
  Child child{"keeps_what_was_lent"};
  child.link().send(world->handle_of(address));
  child.link().wait_for_signal();
  end(0);
  add(0, CU_MEM_HANDLE_TYPE_NONE);
  fill_pattern(address, chunk_size, 9);
  GIVEN(synchronize());
  EXPECT_EQ(refusal(address), Answer{CUDA_ERROR_INVALID_VALUE}) << "that one is not exportable";
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

// Without a context on its own device, the copy is made by the device that uses it.
TEST_F(ProgramMemoryIpc, MemoryOfAPeerIsMadeExportableToo) {
  NEEDS_DEVICES(2);
  add(0, CU_MEM_HANDLE_TYPE_NONE, 1);
  fill_pattern(address, chunk_size, 5);
  GIVEN(synchronize());
  make_exportable(address);
  expect_pattern(address, chunk_size, 5);
  EXPECT_EQ(refusal(address), Answer{CUDA_SUCCESS});
  unsigned device = 0;
  EXPECT_CUDA(
      driver().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  EXPECT_EQ(device, 1u);
}

}  // namespace
}  // namespace cuvmm::test
