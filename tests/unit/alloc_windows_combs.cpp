// SPDX-License-Identifier: Apache-2.0
// Memory that is freed in small pieces all over a full card. Natively none of a comb of blocks up
// to 1 MiB can be allocated as one block (contract: memory_fragmentation.cpp).
#include <random>

#include "alloc_windows_world.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

enum class Freed : std::uint8_t { EverySecond, AtRandom };

struct Comb {
  Size block;
  Freed freed;
  Size memory;
  double share_back;
};

std::string name_of_comb(const ::testing::TestParamInfo<Comb>& info) {
  return std::to_string(info.param.block / KiB) + "KiB" +
         (info.param.freed == Freed::AtRandom ? "AtRandom" : "EverySecond");
}

// How many blocks the driver fits into this much memory. Blocks beyond 1 MiB get granules of their
// own.
Size natively(Size memory, Size block, Size granule) {
  if (block > 1 * MiB) return memory / round_up(block, granule);
  return block != 0 ? memory / granule * (granule / block) : 0;
}

// A stress run fills all of the memory, a plain one half where that says as much.
class WindowsComb : public WindowsTest, public ::testing::WithParamInterface<Comb> {
 protected:
  static Comb comb() {
    Comb chosen = GetParam();
    const bool half_will_do = chosen.freed == Freed::EverySecond || chosen.memory > 1 * GiB;
    if (run_scale() < 10 && half_will_do) chosen.memory /= 2;
    return chosen;
  }
};

TEST_P(WindowsComb, IsRecoveredAsOneBlock) {
  PRINT_SEED_ON_FAILURE();
  const Comb comb = WindowsComb::comb();
  if (run_scale() < 1 && comb.memory > 512 * MiB) GTEST_SKIP() << "too much for a sanitizer";
  WindowsWorld world{driver(), comb.memory,
                     [](WindowSettings& settings) { settings.seed = seed(); }};
  auto blocks = world.fill_with(comb.block);
  const Size native = natively(comb.memory, comb.block, world.granule);
  EXPECT_GE(blocks.size() * 100, native * 95);
  for (const WindowBlock* block : blocks) mark(*block);
  const Size freed = comb.freed == Freed::EverySecond ? world.free_every_second(blocks)
                                                      : world.free_about_half(blocks, seed());
  const auto addresses = addresses_of(blocks);

  const Size largest = world.largest();
  RecordProperty("percent_back",
                 std::to_string(static_cast<double>(largest) * 100.0 / static_cast<double>(freed)));
  EXPECT_GE(static_cast<double>(largest), comb.share_back * static_cast<double>(freed))
      << largest / MiB << " of " << freed / MiB << " MiB";
  WindowBlock& whole = world.block(largest);
  mark(whole);
  EXPECT_EQ(addresses_of(blocks), addresses);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  blocks.push_back(&whole);
  if (blocks.size() < 10'000) expect_true(world.windows(), blocks);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
  // As many fit as before, once the large block is freed.
  world->free(whole);
  blocks.pop_back();
  const auto again = world.fill_with(comb.block);
  EXPECT_GE((blocks.size() + again.size()) * 100, native * 95);
  for (const WindowBlock* block : blocks) expect_marked(*block);
}

// With as many blocks as the driver could allocate, at least as much memory is available after any
// frees as under the driver, which recovers the granules of each freed block of more than 1 MiB.
TEST_P(WindowsComb, NeverHasLessThanTheDriver) {
  PRINT_SEED_ON_FAILURE();
  const Comb comb = WindowsComb::comb();
  if (comb.block <= 1 * MiB) GTEST_SKIP() << "the driver gives nothing back";
  if (run_scale() < 1 && comb.memory > 512 * MiB) GTEST_SKIP() << "too much for a sanitizer";
  WindowsWorld world{driver(), comb.memory,
                     [](WindowSettings& settings) { settings.seed = seed(); }};
  std::vector<WindowBlock*> blocks;
  const Size native = natively(comb.memory, comb.block, world.granule);
  for (Size i = 0; i < native; ++i) blocks.push_back(&world.block(comb.block));
  const Size before = blocks.size();
  comb.freed == Freed::EverySecond ? world.free_every_second(blocks)
                                   : world.free_about_half(blocks, seed());
  const Size gone = before - blocks.size();
  const Size left = comb.memory - native * round_up(comb.block, world.granule);
  EXPECT_GE(world.largest(), gone * round_up(comb.block, world.granule) + left);
  EXPECT_EQ(world->violation().value_or("nothing"), "nothing");
}

constexpr Size comb_size = 3 * GiB;

INSTANTIATE_TEST_SUITE_P(
    Sizes, WindowsComb,
    ::testing::Values(Comb{64 * KiB, Freed::EverySecond, 1 * GiB, 0.95},
                      Comb{64 * KiB, Freed::AtRandom, 1 * GiB, 0.90},
                      Comb{100 * KiB, Freed::EverySecond, 1 * GiB, 0.95},
                      Comb{100 * KiB, Freed::AtRandom, 1 * GiB, 0.90},
                      Comb{130 * KiB, Freed::EverySecond, 1 * GiB, 0.95},
                      Comb{256 * KiB, Freed::EverySecond, 1 * GiB, 0.98},
                      Comb{256 * KiB, Freed::AtRandom, comb_size, 0.90},
                      Comb{512 * KiB, Freed::EverySecond, 1 * GiB, 0.98},
                      Comb{512 * KiB, Freed::AtRandom, comb_size, 0.92},
                      Comb{700 * KiB, Freed::AtRandom, 1 * GiB, 0.95},
                      Comb{1 * MiB, Freed::EverySecond, 1 * GiB, 0.98},
                      Comb{1 * MiB, Freed::AtRandom, comb_size, 0.93},
                      // From here on the driver recovers all of it.
                      Comb{1536 * KiB, Freed::EverySecond, 1 * GiB, 1.0},
                      Comb{1536 * KiB, Freed::AtRandom, 1 * GiB, 1.0},
                      Comb{2 * MiB, Freed::AtRandom, 1 * GiB, 1.0},
                      Comb{2 * MiB + 512 * KiB, Freed::EverySecond, 1 * GiB, 1.0},
                      Comb{2 * MiB + 512 * KiB, Freed::AtRandom, 1 * GiB, 1.0},
                      Comb{3 * MiB, Freed::EverySecond, 1 * GiB, 1.0},
                      Comb{3 * MiB, Freed::AtRandom, comb_size, 0.96},
                      Comb{7 * MiB + 700 * KiB, Freed::AtRandom, 1 * GiB, 0.97},
                      Comb{17 * MiB, Freed::EverySecond, 1 * GiB, 1.0},
                      Comb{64 * MiB, Freed::AtRandom, comb_size, 1.0}),
    name_of_comb);

TEST_F(WindowsTest, ACombOfAllSizesIsMostlyRecovered) {
  PRINT_SEED_ON_FAILURE();
  WindowsWorld world{driver(), 1 * GiB};
  std::mt19937_64 random{seed()};
  std::vector<WindowBlock*> blocks;
  for (int refusals = 0; refusals < 20;) {
    const auto block = world->allocate(64 * KiB + random() % (1 * MiB - 64 * KiB));
    if (block.ok()) {
      blocks.push_back(*block);
    } else {
      ++refusals;
    }
  }
  for (const WindowBlock* block : blocks) mark(*block);
  Size live = 0;
  for (const WindowBlock* block : blocks) live += block->granted();
  EXPECT_GE(live * 100, 95 * GiB) << "it was nearly full";
  const Size freed = world.free_about_half(blocks, seed());
  const Size largest = world.largest();
  RecordProperty("percent_back",
                 std::to_string(static_cast<double>(largest) * 100.0 / static_cast<double>(freed)));
  EXPECT_GE(largest * 100, freed * 85);
  for (const WindowBlock* block : blocks) expect_marked(*block);
  expect_true(world.windows(), blocks);
}

}  // namespace
}  // namespace cuvmm::test
