// SPDX-License-Identifier: Apache-2.0
// Arenas and windows: compaction, and the hand-over of a resize.
#include "golden/sequence.hpp"
#include "unit/alloc_arena_world.hpp"
#include "unit/alloc_windows_world.hpp"

namespace cuvmm::test {
namespace {

using Sequences = DriverContract;

struct Comb : WindowsWorld {
  explicit Comb(const Driver& with) : WindowsWorld(with, 6 * MiB) {}
};

TEST_F(Sequences, WindowsAreCompacted) {
  const auto given = [](const Driver& with) {
    auto world = std::make_unique<Comb>(with);
    auto blocks = world->fill_with(1 * MiB);
    world->free_every_second(blocks);
    return world;
  };
  const auto act = [](Comb& world) { return outcome(world->allocate(2 * MiB)); };
  expect_sequence("windows_compaction", sequences<Comb>(given, act));
}

struct Handover : WindowsWorld {
  explicit Handover(const Driver& with) : WindowsWorld(with, 64 * MiB) {}
  WindowBlock* from = nullptr;
  WindowBlock* to = nullptr;
};

std::string hand_over(Handover& world) {
  const auto moved =
      world->transfer().transfer(*world.from, *world.to, world.from->granted(), [&](Size done) {
        return world.driver.check(
            world.driver.cuMemcpyDtoDAsync(world.to->address() + done, world.from->address() + done,
                                           world.from->granted() - done, nullptr),
            "copy the rest");
      });
  std::string text = outcome(moved);
  if (const Size deferred = world->transfer().deferred_bytes(*world.to); deferred != 0) {
    text += ", without memory " + std::to_string(deferred / KiB) + "K, " +
            outcome(world->transfer().back(*world.to));
  }
  return text;
}

TEST_F(Sequences, ChunksAreHandedOver) {
  const auto given = [](const Driver& with) {
    auto world = std::make_unique<Handover>(with);
    world->from = &world->block(17 * MiB);
    world->to = &world->block(20 * MiB + 100 * KiB);
    return world;
  };
  expect_sequence("windows_hand_over", sequences<Handover>(given, hand_over));
}

TEST_F(Sequences, ChunksAreHandedOverToABlockWithoutMemory) {
  const auto given = [](const Driver& with) {
    auto world = std::make_unique<Handover>(with);
    world->from = &world->block(18 * MiB);
    const GrowHint promise{.kind = GrowHint::Kind::Promise, .granules_at_least = 1};
    world->to = GIVEN_VALUE((*world)->allocate(24 * MiB, promise));
    return world;
  };
  expect_sequence("windows_hand_over_promised", sequences<Handover>(given, hand_over));
}

TEST_F(Sequences, AnArenaMovesItsChunks) {
  const auto given = [](const Driver& with) {
    auto world = std::make_unique<ArenaWorld>(with, ArenaWorld::Given{.limit_granules = 6});
    const auto blocks = world->given_blocks(6, world->granule);
    for (std::size_t i = 1; i < blocks.size(); i += 2) world->free_for_anyone(*blocks[i]);
    return world;
  };
  const auto act = [](ArenaWorld& world) {
    return outcome(world.arena().allocate(world.granules(3), 1));
  };
  expect_sequence("arena_moves", sequences<ArenaWorld>(given, act));
}

}  // namespace
}  // namespace cuvmm::test
