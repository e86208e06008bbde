// SPDX-License-Identifier: Apache-2.0
// Windows with each driver call failing in turn.
#include <set>

#include "alloc_windows_world.hpp"
#include "support/fault_sweep.hpp"

namespace cuvmm::test {
namespace {

class WindowsFaultTest : public WindowsTest {};

struct Prepared : WindowsWorld {
  Prepared(const Driver& with, Size memory) : WindowsWorld(with, memory) {}
  std::vector<WindowBlock*> blocks;
  AccessSet access = read_write();
};

// The blocks that the program holds, their addresses, and their contents. The cache and the chunks
// behind the blocks may change.
std::string describe_blocks(Prepared& world) {
  std::string text;
  for (const WindowBlock* block : world.blocks) {
    text += std::to_string(block->address()) + "+" + std::to_string(block->granted()) + " " +
            std::to_string(read_word(block->address())) + " " +
            std::to_string(read_word(block->end() - 4)) + "\n";
  }
  const WindowCounters counters = world->counters();
  return text + std::to_string(counters.live_blocks) + " " + std::to_string(counters.live_bytes);
}

void check(Prepared& world) {
  // The next request for memory repairs whatever the driver refused.
  (void)world->trim(unlimited);
  for (WindowBlock* block : world.blocks) {
    if (world->transfer().deferred_bytes(*block) == 0) continue;
    EXPECT_OK(world->transfer().back(*block));
    mark(*block);
  }
  expect_true(world.windows(), world.blocks);
  for (const WindowBlock* block : world.blocks) {
    expect_marked(*block);
    EXPECT_EQ(rights(block->address()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  EXPECT_EQ(world.store.violation().value_or("nothing"), "nothing");
}

Result<void> allocate(Prepared& world, Size size) {
  WindowBlock* const block = TRY(world->allocate(size));
  world.blocks.push_back(block);
  mark(*block);
  return {};
}

// Memory that the store could not release counts as in use; then the limit refuses the request,
// with an error that has no driver code.
Result<void> with_number_of_refused_release(Prepared& world, Result<void> result, CUresult fault) {
  if (result.ok() || result.error().kind != ErrorKind::OutOfMemory) return result;
  if (world.store.counters(world.here).physical_unreleased == 0) return result;
  Error error = result.error();
  error.driver_code = fault;
  return error;
}

// After a single failure everything is undone by the time the call returns.
Result<void> with_all_usable(Prepared& world, const Result<void>& result) {
  for (const WindowBlock* block : world.blocks) {
    EXPECT_EQ(rights(block->address()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(rights(block->end() - 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  return result;
}

void sweep(const std::function<void(Prepared&)>& prepare,
           const std::function<Result<void>(Prepared&)>& act, Size memory = 12 * MiB,
           const std::set<std::string>& tried_again = {}) {
  for (const CUresult fault : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    const Scenario<Prepared> scenario{
        .given =
            [prepare, memory](const Driver& driver) {
              auto world = std::make_unique<Prepared>(driver, memory);
              prepare(*world);
              for (const WindowBlock* block : world->blocks) mark(*block);
              return world;
            },
        .when =
            [act, fault](Prepared& world) {
              return with_number_of_refused_release(world, act(world), fault);
            },
        .then = [](Prepared&) {},
        .snapshot = describe_blocks,
        .check = check,
        .makes_up_for =
            [tried_again](const std::string& name, CUresult answer) {
              // A refused allocation is tried again; so is the query of the copies' progress. The
              // free memory of the device is asked for only to avoid futile attempts.
              return answer == CUDA_ERROR_OUT_OF_MEMORY || name == "cuStreamQuery" ||
                     name == "cuMemGetInfo" || tried_again.contains(name);
            }};
    Scenario<Prepared> failing_once = scenario;
    failing_once.when = [&](Prepared& world) {
      return with_all_usable(world, scenario.when(world));
    };
    for_each_failing_call(failing_once, fault);
    for_each_call_failing_from(scenario, fault);
  }
}

TEST_F(WindowsFaultTest, ASmallBlock) {
  sweep([](Prepared& world) { world.blocks = {&world.block(3 * MiB)}; },
        [](Prepared& world) { return allocate(world, 100 * KiB); });
}

TEST_F(WindowsFaultTest, ALargeBlockWithAPiece) {
  sweep([](Prepared& world) { world.blocks = {&world.block(100 * KiB)}; },
        [](Prepared& world) { return allocate(world, 5 * MiB); });
}

TEST_F(WindowsFaultTest, ALargeBlockOfManyChunks) {
  sweep(
      [](Prepared& world) {
        // The store has free chunks of single granules and is at its limit: it must release them to
        // get a large one. If that is refused, they serve as they are.
        world.blocks = {&world.block(2 * MiB)};
        (void)GIVEN_VALUE(world.store.take_many({world.granule, world.here, Export::No}, 5));
      },
      [](Prepared& world) { return allocate(world, 9 * MiB); });
}

TEST_F(WindowsFaultTest, GivingUpCachedWindowsForOthers) {
  sweep(
      [](Prepared& world) {
        world.blocks = world.fill_with(256 * KiB);
        std::vector<WindowBlock*> going(world.blocks.begin() + 8, world.blocks.end());
        world.blocks.resize(8);
        world.free_all(going);
      },
      [](Prepared& world) { return allocate(world, 6 * MiB); });
}

TEST_F(WindowsFaultTest, Compaction) {
  sweep(
      [](Prepared& world) {
        world.blocks = world.fill_with(512 * KiB);
        world.free_every_second(world.blocks);
      },
      [](Prepared& world) { return allocate(world, 6 * MiB); });
}

TEST_F(WindowsFaultTest, CompactionOfPiecesOfLargeBlocks) {
  sweep(
      [](Prepared& world) {
        world.blocks = world.fill_with(3 * MiB);
        world.free_every_second(world.blocks);
      },
      [](Prepared& world) { return allocate(world, 6 * MiB); });
}

TEST_F(WindowsFaultTest, HandingChunksOver) {
  sweep(
      [](Prepared& world) {
        world.blocks = {&world.block(17 * MiB), &world.block(17 * MiB)};
      },
      [](Prepared& world) -> Result<void> {
        WindowBlock& from = *world.blocks[0];
        WindowBlock& to = *world.blocks[1];
        TRY(world->transfer().transfer(from, to, from.granted(), [&](Size done) {
          return world.driver.check(
              world.driver.cuMemcpyDtoD(to.address() + done, from.address() + done,
                                        from.granted() - done),
              "copy the rest");
        }));
        world.blocks.erase(world.blocks.begin());
        mark(to);
        return {};
      },
      64 * MiB, {"cuMemMap", "cuMemSetAccess", "cuMemcpyDtoD"});
}

TEST_F(WindowsFaultTest, Access) {
  NEEDS_DEVICES(2);
  sweep(
      [](Prepared& world) {
        world.blocks = {&world.block(100 * KiB), &world.block(3 * MiB), &world.block(1 * MiB)};
        world->free(world.block(2 * MiB));
      },
      [](Prepared& world) { return world->set_access(read_write().with(1)); });
}

}  // namespace
}  // namespace cuvmm::test
