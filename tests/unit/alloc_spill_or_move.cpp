// SPDX-License-Identifier: Apache-2.0
// Spilling that competes with moving live memory.
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "alloc_arena_world.hpp"
#include "alloc_windows_world.hpp"
#include "base/clock.hpp"
#include "spill/served_memory.hpp"

namespace cuvmm::test {
namespace {

// Memory has moved only recently.
class ArenaSpillOrMove : public VmmTest {
 protected:
  // Four granules' worth of memory is free, but no chunk is.
  static std::unique_ptr<ArenaWorld> given_fragments(const Driver& driver, Size spill_granules) {
    auto world = std::make_unique<ArenaWorld>(
        driver,
        ArenaWorld::Given{.limit_granules = 8, .spill_granules = spill_granules, .compacts = true});
    const std::vector<Block*> quarters = world->given_blocks(32, world->granule / 4);
    for (std::size_t i = 0; i < quarters.size(); ++i) {
      if (is_freed_quarter(i)) world->free_for_anyone(*quarters[i]);
    }
    world->compactor.rest();
    return world;
  }
};

TEST_F(ArenaSpillOrMove, SpillsAsLongAsThereIsRoom) {
  NEEDS_HOST_CHUNKS();
  const auto world = given_fragments(driver(), 1);
  EXPECT_EQ(world->given_block(world->granule).residency, Residency::Far);
  EXPECT_EQ(world->compactor.calls(), 0);
  EXPECT_EQ(world->given_block(world->granule).residency, Residency::Near);
  EXPECT_EQ(world->compactor.calls(), 1);
  world->check();
}

// A host that has no memory left, although some may be spilled.
decltype(Driver::cuMemCreate) create_chunk;
CUresult create_on_the_device(CUmemGenericAllocationHandle* chunk, std::size_t size,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
  const bool is_near = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return is_near ? create_chunk(chunk, size, properties, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

TEST_F(ArenaSpillOrMove, MovesIfTheHostRefuses) {
  NEEDS_HOST_CHUNKS();
  Driver table = driver();
  create_chunk = std::exchange(table.cuMemCreate, create_on_the_device);
  const auto world = given_fragments(table, 8);
  EXPECT_EQ(world->given_block(world->granule).residency, Residency::Near);
  EXPECT_EQ(world->compactor.calls(), 1);
  world->check();
}

// A driver that takes its time to map memory once it is told to.
bool maps_slowly = false;
decltype(Driver::cuMemMap) map_chunk;
CUresult map_at_leisure(CUdeviceptr address, std::size_t size, std::size_t offset,
                        CUmemGenericAllocationHandle chunk, unsigned long long flags) {
  if (maps_slowly) std::this_thread::sleep_for(std::chrono::milliseconds{20});
  return map_chunk(address, size, offset, chunk, flags);
}
class SlowMaps {
 public:
  explicit SlowMaps(Driver& table) {
    map_chunk = std::exchange(table.cuMemMap, map_at_leisure);
    maps_slowly = false;
  }
  void begin() { maps_slowly = true; }
  void end() { maps_slowly = false; }
};

class WindowsSpillOrMove : public WindowsTest {
 protected:
  void TearDown() override {
    world_.reset();
    WindowsTest::TearDown();
  }
  // Half of the memory is free, but only in pieces of chunks.
  WindowsWorld& given_fragments(Size most_spilled) {
    constexpr Size memory = 128 * MiB;
    constexpr Size piece = 512 * KiB;
    world_.emplace(table_, memory);
    // No more than fits: after a refusal, moving memory would rest.
    std::vector<WindowBlock*> blocks = world_->blocks(memory / piece, piece);
    world_->free_every_second(blocks);
    world_->spill(most_spilled);
    return *world_;
  }
  void let_the_host_refuse() {
    create_chunk = std::exchange(table_.cuMemCreate, create_on_the_device);
  }
  // Allocates a block for which memory moves, and that takes a while.
  void move_slowly() {
    slow_.begin();
    world_->block(8 * MiB);
    slow_.end();
  }
  // Allocates a block that lacks 8 MiB.
  void request_more() {
    world_->block(world_->store.counters(world_->here).physical_free + 8 * MiB);
  }

 private:
  Driver table_ = driver();
  SlowMaps slow_{table_};
  std::optional<WindowsWorld> world_;
};

// Moving memory stops the program, which can do without if the memory may lie elsewhere.
TEST_F(WindowsSpillOrMove, SoonAfterAMoveMemorySpillsInstead) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld& world = given_fragments(8 * MiB);
  const int begun = world.quiescence.begun();
  move_slowly();
  EXPECT_EQ(world.quiescence.begun(), begun + 1);
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
  request_more();
  EXPECT_EQ(world.quiescence.begun(), begun + 1);
  EXPECT_EQ(world->counters().spilled_bytes, 8 * MiB);
  world.block(8 * MiB);
  EXPECT_EQ(world.quiescence.begun(), begun + 2) << "there is no room elsewhere any more";
}

TEST_F(WindowsSpillOrMove, SoonAfterAMoveMemoryMovesIfTheHostRefuses) {
  NEEDS_HOST_CHUNKS();
  let_the_host_refuse();
  WindowsWorld& world = given_fragments(64 * MiB);
  const int begun = world.quiescence.begun();
  move_slowly();
  request_more();
  EXPECT_EQ(world.quiescence.begun(), begun + 2);
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
}

TEST_F(WindowsSpillOrMove, WithTooLittleRoomElsewhereMemoryMovesAtOnce) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld& world = given_fragments(6 * MiB);
  move_slowly();
  request_more();
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
}

TEST_F(WindowsSpillOrMove, AWaitForRunningWorkIsNoReasonToSpill) {
  NEEDS_HOST_CHUNKS();
  WindowsWorld& world = given_fragments(64 * MiB);
  // If the waits counted, memory would rest for 9.6 s longer.
  std::uint64_t waited = 0;
  world.quiescence.during([&] {
    const std::uint64_t from = now_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    waited += now_ns() - from;
  });
  const std::uint64_t began = now_ns();
  world.block(8 * MiB);
  const std::uint64_t moved_for = now_ns() - began - waited;
  // Memory rests for 32 times as long as the move took, which is at most `moved_for`.
  std::this_thread::sleep_for(std::chrono::nanoseconds{33 * moved_for});
  request_more();
  EXPECT_EQ(world->counters().spilled_bytes, 0u);
}

class MemorySpillOrMove : public DriverContract {};

TEST_F(MemorySpillOrMove, SoonAfterAMoveOrderedMemorySpillsInstead) {
  NEEDS_HOST_CHUNKS();
  constexpr Size limit = 64 * MiB;
  Driver table = driver();
  SlowMaps slow{table};
  MemorySettings chosen;
  chosen.limit = SizeLimit::of_bytes(limit);
  chosen.spill = {SpillTo::Host, SizeLimit::of_bytes(limit)};
  ServedMemory program{table, chosen};
  const auto given_ordered = [&](Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(program.memory->allocate_ordered(&address, size, StreamName{}), Answer{CUDA_SUCCESS});
    return address;
  };
  const auto free = [&](CUdeviceptr address) {
    EXPECT_EQ(program.memory->free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  };
  const auto spilled = [&] {
    return program.memory->devices().serve(0)->store().spilled().physical_in_use;
  };
  std::vector<CUdeviceptr> quarters(limit / (512 * KiB));
  for (CUdeviceptr& address : quarters) address = given_ordered(512 * KiB);
  ASSERT_EQ(spilled(), 0u);
  for (std::size_t i = 0; i < quarters.size(); ++i) {
    if (is_freed_quarter(i)) free(quarters[i]);
  }
  slow.begin();
  const CUdeviceptr moved_for = given_ordered(4 * MiB);
  slow.end();
  EXPECT_EQ(spilled(), 0u);
  const CUdeviceptr far = given_ordered(4 * MiB);
  EXPECT_EQ(spilled(), 4 * MiB);
  free(moved_for);
  free(far);
}

}  // namespace
}  // namespace cuvmm::test
