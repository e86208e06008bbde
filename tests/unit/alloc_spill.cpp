// SPDX-License-Identifier: Apache-2.0
// Memory beyond what the device or the limit has room for: where it comes from, and that it is
// returned as soon as possible.
#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "alloc/memory.hpp"
#include "alloc_arena_world.hpp"
#include "alloc_windows_world.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {
namespace {

class ArenaSpill : public ArenaTest {
 protected:
  Size spilled() { return world().arena().counters().spilled; }
};

TEST_F(ArenaSpill, TakesMemoryBeyondTheLimitFromTheHost) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 4, .spill_granules = 8});
  Block& first = world().given_block(world().granules(3));
  Block& second = world().given_block(world().granules(3));
  world().expect_intact(first);
  world().expect_intact(second);
  EXPECT_EQ(first.residency, Residency::Near);
  EXPECT_EQ(second.residency, Residency::Far);
  EXPECT_EQ(world().budget->committed_bytes(), world().granules(4));
  EXPECT_EQ(spilled(), world().granules(2));
  EXPECT_EQ(world().spill_budget->committed_bytes(), world().granules(2));
}

TEST_F(ArenaSpill, BeyondTheSpillLimitIsRefused) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 4, .spill_granules = 2});
  world().given_block(world().granules(6));
  const auto more = world().arena().allocate(world().granules(1), 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().kind, ErrorKind::OutOfMemory);
}

TEST_F(ArenaSpill, FreeMemoryOfTheDeviceIsUsedFirst) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 4, .spill_granules = 4});
  Block& near = world().given_block(world().granules(4));
  Block& far = world().given_block(world().granules(4));
  world().free(near);
  world().free(far);
  Block& again = world().given_block(world().granules(4));
  EXPECT_EQ(again.residency, Residency::Near);
  world().expect_intact(again);
}

TEST_F(ArenaSpill, FreeSpilledMemoryIsUsedBeforeMoreIsTaken) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 2, .spill_granules = 8});
  world().given_block(world().granules(2));
  Block& far = world().given_block(world().granules(3));
  world().free(far);
  world().given_block(world().granules(3));
  EXPECT_EQ(world().spill_budget->committed_bytes(), world().granules(3));
}

TEST_F(ArenaSpill, RoomOnTheDeviceReplacesFreeSpilledMemory) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 2, .spill_granules = 8});
  world().given_block(world().granules(2));
  Block& far = world().given_block(world().granules(3));
  world().free_for_anyone(far);
  world().budget->set_limit(world().granules(8));
  Block& next = world().given_block(world().granules(3));
  EXPECT_EQ(next.residency, Residency::Near);
  EXPECT_EQ(spilled(), 0u);
}

// The device has little free memory, scattered: that stays for blocks that fit, and nothing moves.
TEST_F(ArenaSpill, WithLittleRoomOnTheDeviceABlockIsWhollyFar) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 12, .spill_granules = 16});
  auto blocks = world().given_blocks(6, world().granules(2));
  world().free_for_anyone(*blocks[1]);
  Block& large = world().given_block(world().granules(9));
  EXPECT_EQ(large.residency, Residency::Far);
  EXPECT_EQ(spilled(), world().granules(9));
  EXPECT_EQ(world().arena().counters().moved_chunks, 0u);
  EXPECT_EQ(world().given_block(world().granules(2)).residency, Residency::Near);
  world().expect_intact(large);
}

TEST_F(ArenaSpill, TheDeviceCoversWhatCannotBeSpilled) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 12, .spill_granules = 8});
  auto blocks = world().given_blocks(6, world().granules(2));
  world().free_for_anyone(*blocks[1]);
  Block& large = world().given_block(world().granules(9));
  EXPECT_EQ(large.residency, Residency::Far);
  EXPECT_LE(spilled(), world().granules(8));
  world().expect_intact(large);
}

// The spilled memory would soon be needed again.
TEST_F(ArenaSpill, ALittleRoomOnTheDeviceDoesNotReplaceMuchFreeSpilledMemory) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 2, .spill_granules = 8});
  world().given_block(world().granules(2));
  world().free_for_anyone(world().given_block(world().granules(6)));
  world().budget->set_limit(world().granules(5));
  EXPECT_EQ(world().given_block(world().granules(2)).residency, Residency::Near);
  EXPECT_EQ(spilled(), world().granules(6));
}

TEST_F(ArenaSpill, BlocksThatShareASpilledChunkAreIndependent) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 1, .spill_granules = 2});
  const Size half = world().granule / 2;
  auto blocks = world().given_blocks(6, half);
  EXPECT_EQ(spilled(), world().granules(2));
  for (std::size_t i = 1; i < blocks.size(); i += 2) world().free_for_anyone(*blocks[i]);
  for (std::size_t i = 0; i < blocks.size(); i += 2) world().expect_intact(*blocks[i]);
  for (std::size_t i = 1; i < blocks.size(); i += 2) blocks[i] = &world().given_block(half);
  for (const Block* block : blocks) world().expect_intact(*block);
}

// Memory with pending work can be moved once the work is complete: waiting for much of it costs
// less than using as much more far memory.
TEST_F(ArenaSpill, WaitsForMuchPendingMemoryToSpillLess) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 12, .spill_granules = 16});
  auto blocks = world().given_blocks(6, world().granules(2));
  for (std::size_t i = 0; i < blocks.size(); i += 2) world().free(*blocks[i]);
  Block& large = world().given_block(world().granules(8));
  EXPECT_EQ(large.residency, Residency::Far);
  EXPECT_EQ(spilled(), world().granules(2));
  EXPECT_GE(world().order.waits(), 1);
  world().expect_intact(large);
}

TEST_F(ArenaSpill, LittlePendingMemoryIsNotWaitedFor) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 12, .spill_granules = 32});
  auto blocks = world().given_blocks(6, world().granules(2));
  world().free(*blocks[2]);
  world().given_block(world().granules(16));
  EXPECT_EQ(world().order.waits(), 0);
}

TEST_F(ArenaSpill, MemoryPinnedAheadIsReadyBeforeItIsNeeded) {
  NEEDS_HOST_CHUNKS();
  given({.limit_granules = 2, .spill_granules = 8});
  ASSERT_TRUE(world().store.make_spilled_ready(world().granules(2)).ok());
  EXPECT_EQ(world().store.spilled().physical_free, world().granules(2));
  EXPECT_EQ(spilled(), 0u);
  world().given_block(world().granules(2));
  Block& far = world().given_block(world().granules(2));
  EXPECT_EQ(far.residency, Residency::Far);
  EXPECT_EQ(world().store.spilled().physical_free, 0u);
  EXPECT_EQ(world().spill_budget->committed_bytes(), world().granules(2));
  EXPECT_FALSE(world().store.make_spilled_ready(world().granules(8)).ok()) << "beyond the bound";
}

class WindowsSpill : public WindowsTest {};

TEST_F(WindowsSpill, LargeBlocksMayResidePartlyOnTheHost) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld world{driver(), 16 * MiB};
  world.spill(64 * MiB);
  WindowBlock& first = world.block(10 * MiB);
  WindowBlock& second = world.block(15 * MiB);
  mark(first);
  mark(second);
  expect_true(world.windows(), {&first, &second});
  expect_marked(first);
  expect_marked(second);
  EXPECT_EQ(world.budget->committed_bytes(), 16 * MiB);
  EXPECT_EQ(world->counters().spilled_bytes, 10 * MiB);
}

TEST_F(WindowsSpill, SmallBlocksShareChunksOfTheHost) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld world{driver(), 4 * MiB};
  world.spill(4 * MiB);
  const auto blocks = world.blocks(32, 256 * KiB);
  for (const WindowBlock* block : blocks) mark(*block);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  EXPECT_EQ(world->counters().spilled_bytes, 4 * MiB);
  EXPECT_FALSE(world->allocate(256 * KiB).ok());
}

TEST_F(WindowsSpill, AFreedSpilledBlockIsNotKeptForTheNext) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld world{driver(), 8 * MiB};
  world.spill(8 * MiB);
  WindowBlock& near = world.block(8 * MiB);
  WindowBlock& far = world.block(8 * MiB);
  world->free(near);
  world->free(far);
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
  world.block(8 * MiB);
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
}

// A driver that may have no more addresses.
bool has_addresses = true;
decltype(Driver::cuMemAddressReserve) reserve_addresses;
CUresult reserve_if_there_are_any(CUdeviceptr* address, std::size_t size, std::size_t alignment,
                                  CUdeviceptr wanted, unsigned long long flags) {
  if (!has_addresses) return CUDA_ERROR_OUT_OF_MEMORY;
  return reserve_addresses(address, size, alignment, wanted, flags);
}

// Memory as the hooks use it.
class MemorySpill : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    has_addresses = true;
    table_ = driver();
    reserve_addresses = std::exchange(table_.cuMemAddressReserve, reserve_if_there_are_any);
  }
  void begin(const MemorySettings& settings) {
    memory_.reset();
    clock_.emplace(table_, unseen_program(captures_, gate_));
    memory_.emplace(Memory::Dependencies{table_, *clock_, captures_, gate_, submission_epoch_,
                                         [] { return true; }},
                    settings);
  }
  void TearDown() override {
    if (memory_) {
      EXPECT_EQ(memory_->violation().value_or("nothing"), "nothing");
    }
    memory_.reset();
    clock_.reset();
    DriverContract::TearDown();
  }
  CUdeviceptr given(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory_->allocate(&address, size), Answer{CUDA_SUCCESS});
    return address;
  }
  CUdeviceptr given_ordered(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory_->allocate_ordered(&address, size, StreamName{}), Answer{CUDA_SUCCESS});
    return address;
  }
  Size spilled(int ordinal = 0) {
    return memory_->devices().serve(ordinal)->store().spilled().physical_in_use;
  }
  cuvmm::MemoryInfo info() {
    cuvmm::MemoryInfo all;
    size_t free = 0;
    size_t total = 0;
    EXPECT_CUDA(driver().cuMemGetInfo(&free, &total));
    all.free = free;
    all.total = total;
    return memory_->info(all);
  }

  Driver table_;
  Captures captures_;
  Gate gate_;
  SubmissionEpoch submission_epoch_;
  std::optional<StreamClock> clock_;
  std::optional<Memory> memory_;
};

constexpr Size limit = 64 * MiB;

MemorySettings settings(SpillTo to, Size most) {
  MemorySettings chosen;
  chosen.limit = SizeLimit::of_bytes(limit);
  chosen.spill = {to, SizeLimit::of_bytes(most)};
  return chosen;
}

TEST_F(MemorySpill, BothKindsOfMemoryGoBeyondTheLimit) {
  NEEDS_HOST_CHUNKS();
  begin(settings(SpillTo::Host, limit));
  const CUdeviceptr blocking = given(40 * MiB);
  const CUdeviceptr ordered = given_ordered(40 * MiB);
  const CUdeviceptr more = given(20 * MiB);
  for (const CUdeviceptr address : {blocking, ordered, more}) {
    EXPECT_CUDA(driver().cuMemsetD32(address, 0x01020304, 5 * MiB));
    submission_epoch_.leave();
  }
  EXPECT_GE(spilled(), 36 * MiB);
  EXPECT_LE(memory_->devices().serve(0)->budget().committed_bytes(), limit);
  for (const CUdeviceptr address : {blocking, ordered, more}) {
    EXPECT_EQ(read_word(address + 20 * MiB - 4), 0x01020304u);
  }
  EXPECT_EQ(memory_->free(blocking), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->free(more), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
}

// One thread waits for the free to the end; the others need not be refused for that.
TEST_F(MemorySpill, ThreadsThatLackMemoryAtOnceAllSpill) {
  NEEDS_HOST_CHUNKS();
  constexpr Size size = 20 * MiB;
  MemorySettings chosen = settings(SpillTo::Host, 512 * MiB);
  chosen.wait = Duration{100'000};
  begin(chosen);
  const CUdeviceptr freed = given(size);
  const std::array<CUdeviceptr, 2> kept{given(size), given(size)};
  const GivenStream stream;
  SlowWork work{kernels(), stream};
  submission_epoch_.leave();
  ASSERT_EQ(memory_->free_ordered(freed, {.handle = stream}), Answer{CUDA_SUCCESS});

  std::array<CUdeviceptr, 5> got{};
  std::array<std::thread, 5> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread{[&, i] {
      GIVEN(driver().cuCtxSetCurrent(primary()));
      got[i] = given(size);
    }};
  }
  for (std::thread& thread : threads) thread.join();

  work.end();
  GIVEN(driver().cuStreamSynchronize(stream));
  for (const CUdeviceptr one : kept) EXPECT_EQ(memory_->free(one), Answer{CUDA_SUCCESS});
  for (const CUdeviceptr one : got) EXPECT_EQ(memory_->free(one), Answer{CUDA_SUCCESS});
}

TEST_F(MemorySpill, FindsAddressesForManySmallBlocks) {
  NEEDS_HOST_CHUNKS();
  begin(settings(SpillTo::Host, GiB));
  given(1000);
  given_ordered(1000);
  const DeviceMemory& device = *memory_->devices().serve(0);
  EXPECT_EQ(device.most_spilled(), GiB);
  for (const RegionUse& region : memory_->holdings().regions(0)) {
    if (region.reserved == 0) continue;  // windows reserve addresses for each block
    EXPECT_GE(region.reserved, device.memory() + GiB) << region.what;
  }
}

TEST_F(MemorySpill, MemoryInfoReportsTheDeviceOnly) {
  NEEDS_HOST_CHUNKS();
  begin(settings(SpillTo::Host, limit));
  const CUdeviceptr address = given(limit);
  const CUdeviceptr elsewhere = given(limit / 2);
  const CUdeviceptr ordered = given_ordered(limit / 4);
  EXPECT_EQ(info().total, limit);
  EXPECT_EQ(info().free, 0u);
  EXPECT_EQ(memory_->free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->free(elsewhere), Answer{CUDA_SUCCESS});
  EXPECT_EQ(info().free, 0u);
  EXPECT_EQ(memory_->free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(info().free, limit);
}

TEST_F(MemorySpill, ANeighboursMemoryCountsAgainstItsOwnLimit) {
  NEEDS_DEVICES(2);
  begin(settings(SpillTo::Auto, limit));
  const CUdeviceptr first = given(limit);
  const CUdeviceptr second = given(limit / 2);
  EXPECT_CUDA(driver().cuMemsetD32(second, 7, limit / 8));
  EXPECT_EQ(read_word(second + limit / 2 - 4), 7u);
  EXPECT_EQ(spilled(), limit / 2);
  EXPECT_EQ(memory_->devices().serve(1)->budget().committed_bytes(), limit / 2);
  EXPECT_EQ(memory_->free(second), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->free(first), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->devices().serve(0)->store().reclaim_spilled(unlimited), limit / 2);
  EXPECT_EQ(memory_->devices().serve(1)->budget().committed_bytes(), 0u);
}

// The neighbour's own allocations come first: free memory spilled to it is returned to it.
TEST_F(MemorySpill, ANeighbourUnderPressureGetsFreeSpilledMemoryBack) {
  NEEDS_DEVICES(2);
  begin(settings(SpillTo::Peer, limit));
  const CUdeviceptr near = given(limit);
  for (const bool ordered : {false, true}) {
    const CUdeviceptr far = ordered ? given_ordered(limit / 2) : given(limit / 2);
    EXPECT_EQ(ordered ? memory_->free_ordered(far, StreamName{}) : memory_->free(far),
              Answer{CUDA_SUCCESS});
    EXPECT_CUDA(synchronize());
    EXPECT_EQ(memory_->devices().serve(1)->budget().committed_bytes(), limit / 2);
    const PrimaryContext there{1};
    const CUdeviceptr own = given(limit);
    EXPECT_EQ(memory_->free(own), Answer{CUDA_SUCCESS});
    EXPECT_TRUE(memory_->make_room());
  }
  GIVEN(driver().cuCtxSetCurrent(primary()));
  EXPECT_EQ(memory_->free(near), Answer{CUDA_SUCCESS});
}

TEST_F(MemorySpill, WhatANeighbourOnlyCachesMakesWay) {
  NEEDS_DEVICES(2);
  begin(settings(SpillTo::Peer, limit));
  const CUdeviceptr near = given(limit);
  const PrimaryContext there{1};
  for (const bool ordered : {false, true}) {
    SCOPED_TRACE(ordered ? "stream-ordered" : "blocking");
    GIVEN(driver().cuCtxSetCurrent(there.get()));
    const CUdeviceptr own = ordered ? given_ordered(limit) : given(limit);
    EXPECT_EQ(ordered ? memory_->free_ordered(own, StreamName{}) : memory_->free(own),
              Answer{CUDA_SUCCESS});
    EXPECT_CUDA(synchronize());
    EXPECT_EQ(memory_->devices().serve(1)->budget().committed_bytes(), limit);
    GIVEN(driver().cuCtxSetCurrent(primary()));
    const CUdeviceptr far = given(limit / 2);
    EXPECT_EQ(spilled(), limit / 2);
    EXPECT_EQ(memory_->free(far), Answer{CUDA_SUCCESS});
    EXPECT_TRUE(memory_->make_room());
  }
  EXPECT_EQ(memory_->free(near), Answer{CUDA_SUCCESS});
  GIVEN(driver().cuCtxSetCurrent(there.get()));
}

TEST_F(MemorySpill, ANeighboursMemoryInfoCountsFreeSpilledMemoryAsFree) {
  NEEDS_DEVICES(2);
  begin(settings(SpillTo::Peer, limit));
  const CUdeviceptr near = given(limit);
  const auto free_there = [this] {
    const PrimaryContext there{1};
    return info().free;
  };
  const Size before = free_there();
  for (const bool ordered : {false, true}) {
    const CUdeviceptr far = ordered ? given_ordered(limit / 2) : given(limit / 2);
    EXPECT_EQ(free_there(), before - limit / 2);
    EXPECT_EQ(ordered ? memory_->free_ordered(far, StreamName{}) : memory_->free(far),
              Answer{CUDA_SUCCESS});
    EXPECT_CUDA(synchronize());
    EXPECT_EQ(free_there(), before) << (ordered ? "stream-ordered" : "blocking");
    EXPECT_TRUE(memory_->make_room());
  }
  EXPECT_EQ(memory_->free(near), Answer{CUDA_SUCCESS});
}

// Two places without a limit: their sum would overflow.
TEST_F(MemorySpill, WithoutALimitItSpillsWhereverThereIsRoom) {
  NEEDS_DEVICES(2);
  MemorySettings chosen = settings(SpillTo::Auto, limit);
  chosen.spill.limit = SizeLimit::none();
  begin(chosen);
  const CUdeviceptr first = given(limit);
  const CUdeviceptr second = given(limit / 2);
  EXPECT_EQ(spilled(), limit / 2);
  EXPECT_EQ(memory_->free(second), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory_->free(first), Answer{CUDA_SUCCESS});
}

// The driver might have more, but is not asked for memory beyond the limit.
TEST_F(MemorySpill, TheLimitHoldsWhenAddressesRunOut) {
  MemorySettings chosen = settings(SpillTo::Host, limit);
  chosen.spill.limit = SizeLimit::none();
  begin(chosen);
  std::vector<CUdeviceptr> blocks{given(limit / 2)};
  has_addresses = false;  // beyond what is reserved
  Answer answer;
  constexpr int too_many = 10'000;
  for (int i = 0; i < too_many; ++i) {
    CUdeviceptr block = 0;
    answer = memory_->allocate(&block, limit / 2);
    if (answer != Answer{CUDA_SUCCESS}) break;
    blocks.push_back(block);
  }
  EXPECT_EQ(answer, Answer{CUDA_ERROR_OUT_OF_MEMORY});
  for (const CUdeviceptr block : blocks) {
    EXPECT_EQ(memory_->free(block), Answer{CUDA_SUCCESS});
  }
}

TEST_F(MemorySpill, OffRefusesAsBefore) {
  begin(settings(SpillTo::Off, limit));
  given(limit);
  CUdeviceptr address = 0;
  EXPECT_EQ(memory_->allocate(&address, limit / 2), Answer{CUDA_ERROR_OUT_OF_MEMORY});
}

}  // namespace
}  // namespace cuvmm::test
