// SPDX-License-Identifier: Apache-2.0
// Scenarios of an arena with each driver call failing in turn.
#include <random>

#include "alloc_arena_world.hpp"
#include "support/fault_sweep.hpp"

namespace cuvmm::test {
namespace {

class ArenaFaults : public VmmTest {};

struct Prepared : ArenaWorld {
  using ArenaWorld::ArenaWorld;
  std::vector<Block*> live;
  Block* had = nullptr;
};

// Everything that the program would notice, and what is mapped.
std::string snapshot(Prepared& world) {
  std::string text = std::to_string(world.arena().mapped_bytes()) + " mapped, " +
                     std::to_string(world.arena().counters().live) + " live\n";
  for (const Block* block : world.live) {
    text += std::to_string(world.offset_of(*block)) + ": " +
            std::to_string(read_word(block->address())) + "\n";
  }
  return text;
}

// The arena repairs first what a driver that also refused an undo has left.
void check(Prepared& world) {
  world.arena().trim(unlimited);
  world.check();
  for (const Block* block : world.live) world.expect_intact(*block);
}

using Prepare = std::function<void(Prepared&)>;

Scenario<Prepared> scenario(const ArenaWorld::Given& given, const Prepare& prepare,
                            const std::function<Result<void>(Prepared&)>& act) {
  return {.given =
              [=](const Driver& driver) {
                auto world = std::make_unique<Prepared>(driver, given);
                prepare(*world);
                return world;
              },
          .when = act,
          .then =
              [](Prepared& world) {
                if (world.had != nullptr)
                  fill_pattern(world.had->address(), world.had->granted(), 9);
                check(world);
              },
          .snapshot = snapshot,
          .check = check};
}

Result<void> allocate(Prepared& world, Size granules) {
  world.had = TRY(world.arena().allocate(world.granules(granules), 1));
  return {};
}

// If the driver has no memory, the arena recovers by moving chunks and by asking again.
bool is_made_up_for(const std::string& name, CUresult fault) {
  return fault == CUDA_ERROR_OUT_OF_MEMORY &&
         (name == "cuMemCreate" || name == "cuDeviceGetAttribute");
}

TEST_F(ArenaFaults, Growing) {
  auto growing = scenario(
      {}, [](Prepared& world) { world.live = world.given_blocks(2, 3 * MiB); },
      [](Prepared& world) { return allocate(world, 4); });
  growing.makes_up_for = is_made_up_for;
  sweep_faults(growing);
}

void prepare_comb(Prepared& world) {
  const auto blocks = world.given_blocks(8, world.granule);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      world.live.push_back(blocks[i]);
    } else {
      world.free_for_anyone(*blocks[i]);
    }
  }
}

TEST_F(ArenaFaults, Moving) {
  auto moving = scenario({.limit_granules = 8}, prepare_comb,
                         [](Prepared& world) { return allocate(world, 4); });
  sweep_faults(moving);
}

TEST_F(ArenaFaults, PartlyNewAndPartlyMoved) {
  auto both = scenario({.limit_granules = 10}, prepare_comb,
                       [](Prepared& world) { return allocate(world, 6); });
  both.makes_up_for = is_made_up_for;
  sweep_faults(both);
}

TEST_F(ArenaFaults, MovingLargeChunks) {
  sweep_faults(scenario(
      {.limit_granules = 16, .largest_chunk = 4 * usual_granule, .share_of_room = 1},
      [](Prepared& world) {
        const auto blocks = world.given_blocks(4, world.granules(4));
        world.live = {blocks[0], blocks[2]};
        world.free_for_anyone(*blocks[1]);
        world.free_for_anyone(*blocks[3]);
      },
      [](Prepared& world) { return allocate(world, 8); }));
}

TEST_F(ArenaFaults, Spilling) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  auto spilling = scenario({.limit_granules = 10, .spill_granules = 8}, prepare_comb,
                           [](Prepared& world) { return allocate(world, 12); });
  // A place that refuses a chunk, for whatever reason, may still have a smaller one.
  spilling.makes_up_for = [](const std::string& name, CUresult fault) {
    return name == "cuMemCreate" || is_made_up_for(name, fault);
  };
  sweep_faults(spilling);
}

TEST_F(ArenaFaults, SettingAccess) {
  NEEDS_DEVICES(2);
  sweep_faults(scenario({}, prepare_comb, [](Prepared& world) {
    return world.arena().set_access(AccessSet::of(0, Access::ReadWrite).with(1, Access::Read));
  }));
}

// Live quarters of granules, such that two granules fit into one chunk.
void prepare_quarters(Prepared& world) {
  const auto blocks = world.given_blocks(16, world.granule / 4);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!is_freed_quarter(i)) {
      world.live.push_back(blocks[i]);
    } else {
      world.free_for_anyone(*blocks[i]);
    }
  }
}

Result<void> compact(Prepared& world) {
  TRY(world.compactor.compact(world.granules(2)));
  return {};
}

TEST_F(ArenaFaults, MovingLiveMemory) {
  auto moving = scenario({.limit_granules = 4, .compacts = true}, prepare_quarters, compact);
  moving.makes_up_for = [](const std::string& name, CUresult) {
    return name == "cuStreamCreate" || name == "cuCtxGetCurrent";  // for the copies' own stream
  };
  sweep_faults(moving);
}

TEST_F(ArenaFaults, MovingLiveMemoryOutOfALargeChunk) {
  auto moving = scenario(
      {.limit_granules = 6,
       .largest_chunk = 4 * usual_granule,
       .share_of_room = 1,
       .compacts = true},
      [](Prepared& world) {
        prepare_quarters(world);
        // The chunks to move to are free.
        world.free_for_anyone(world.given_block(world.granules(2)));
        world.arena().trim(world.granules(4));
      },
      compact);
  // Less is gained: without spare chunks, or by the batches before the one that fails.
  moving.makes_up_for = [](const std::string&, CUresult) { return true; };
  sweep_faults(moving);
}

// Trimming reports to nobody: memory that the driver refuses to take stays, undamaged.
TEST_F(ArenaFaults, Trimming) {
  auto trimming = scenario({}, prepare_comb, [](Prepared& world) -> Result<void> {
    world.arena().trim(0);
    return {};
  });
  trimming.makes_up_for = [](const std::string&, CUresult) { return true; };
  sweep_faults(trimming);
}

// Once a driver that refused everything works again, so does the arena.
TEST_F(ArenaFaults, RecoversOnceTheDriverWorksAgain) {
  for (std::uint64_t number = 1; number < 40; ++number) {
    SCOPED_TRACE("from driver call " + std::to_string(number));
    FaultyDriver faulty{driver()};
    Prepared world{faulty, {.limit_granules = 8}};
    prepare_comb(world);
    faulty.fail_from(number, CUDA_ERROR_UNKNOWN);
    const Result<void> refused = allocate(world, 4);
    faulty.stop_failing();
    check(world);
    if (refused.ok()) return;
    // Chunks that could not be put back went to the store, and nothing is lost.
    ASSERT_OK(allocate(world, 4));
    fill_pattern(world.had->address(), world.had->granted(), 3);
    check(world);
  }
}

// What a driver that refuses the undo too has left without memory is repaired before the next use.
TEST_F(ArenaFaults, LiveMemoryIsBackOnceTheDriverWorksAgain) {
  for (std::uint64_t number = 1; number < 100; ++number) {
    SCOPED_TRACE("from driver call " + std::to_string(number));
    FaultyDriver faulty{driver()};
    Prepared world{faulty, {.limit_granules = 4, .compacts = true}};
    prepare_quarters(world);
    faulty.fail_from(number, CUDA_ERROR_UNKNOWN);
    const Result<void> refused = compact(world);
    world.free_for_anyone(*world.live.back());
    world.live.pop_back();
    faulty.stop_failing();
    check(world);
    if (refused.ok()) return;
    const bool copies_may_run = retry_releases() == 0 && world.arena().counters().blocks > 7;
    if (copies_may_run) continue;  // where they write is not used again
    ASSERT_OK(allocate(world, 2));
    fill_pattern(world.had->address(), world.had->granted(), 3);
    check(world);
  }
}

// The driver refuses everything from some call on, and works again later.
void expect_recovery(const ArenaWorld::Given& given, const Prepare& prepare,
                     const std::function<void(Prepared&)>& act) {
  bool was_refused = false;
  for (std::uint64_t number = 1; number < 400; ++number) {
    SCOPED_TRACE("from driver call " + std::to_string(number));
    FaultyDriver faulty{driver()};
    Prepared world{faulty, given};
    prepare(world);
    faulty.fail_from(number, CUDA_ERROR_UNKNOWN);
    act(world);
    const bool failed = faulty.faults() != 0;
    was_refused |= failed;
    faulty.stop_failing();
    (void)retry_releases();
    check(world);
    if (!failed) break;
  }
  EXPECT_TRUE(was_refused);
}

constexpr ArenaWorld::Given world_for_stripes{
    .limit_granules = 16, .reserve_granules = 512, .compacts = true, .spreads = true};
constexpr ArenaWorld::Given small_world_for_stripes{
    .limit_granules = 6, .reserve_granules = 128, .compacts = true, .spreads = true};
constexpr Size in_stripes_of_several_chunks = 100 * KiB;

// The first chunk is full, so the next block is the first in stripes.
void prepare_run(Prepared& world) {
  world.live = world.given_blocks(20, in_stripes_of_several_chunks);
}

TEST_F(ArenaFaults, LayingStripes) {
  auto laying = scenario(world_for_stripes, prepare_run, [](Prepared& world) -> Result<void> {
    world.had = TRY(world.arena().allocate(in_stripes_of_several_chunks, 1));
    return {};
  });
  laying.makes_up_for = is_made_up_for;  // without stripes
  sweep_faults(laying);
}

TEST_F(ArenaFaults, LayingStripesRecoversOnceTheDriverWorksAgain) {
  expect_recovery(world_for_stripes, prepare_run, [](Prepared& world) {
    for (int i = 0; i < 40; ++i) {
      const auto had = world.arena().allocate(in_stripes_of_several_chunks, 1);
      if (had.ok()) world.free_for_anyone(**had);
    }
  });
}

// Fills the memory, and frees two thirds of the blocks at random.
void prepare_comb_of_stripes(Prepared& world) {
  std::mt19937_64 random{3};
  const auto blocks = world.given_blocks(world.chosen.limit_granules * 32, 64 * KiB);
  for (Block* const block : blocks) {
    if (random() % 3 == 0) {
      world.live.push_back(block);
    } else {
      world.free_for_anyone(*block);
    }
  }
}

Result<void> compact_all(Prepared& world) {
  TRY(world.compactor.compact(world.granules(6)));
  return {};
}

TEST_F(ArenaFaults, MovingStripes) {
  auto moving = scenario(small_world_for_stripes, prepare_comb_of_stripes, compact_all);
  // A batch that fails after others is not reported.
  moving.makes_up_for = [](const std::string&, CUresult) { return true; };
  sweep_faults(moving);
}

TEST_F(ArenaFaults, StripesAreBackOnceTheDriverWorksAgain) {
  expect_recovery(small_world_for_stripes, prepare_comb_of_stripes,
                  [](Prepared& world) { (void)compact_all(world); });
}

}  // namespace
}  // namespace cuvmm::test
