// SPDX-License-Identifier: Apache-2.0
// Small blocks of equal size in stripes: several granules of addresses share a chunk from the
// start.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "alloc/arena/stripes.hpp"
#include "alloc_arena_world.hpp"
#include "support/fault_sweep.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

using arena::Stripes;

Stripes stripes_for(Size block, Size chunks) {
  return Stripes::of(block, usual_granule, Stripes::blocks_a_stripe(block, usual_granule, chunks));
}

TEST(StripesOfChunks, EveryByteBelongsToOneGranule) {
  for (Size block = 64 * KiB; Stripes::are_for(block, usual_granule); block += 512) {
    const Stripes stripes = stripes_for(block, 1024);
    const Size all = stripes.chunks() * usual_granule;
    std::map<Size, Size> parts;  // by offset from the first chunk's begin
    for (const auto& [chunk, where] : stripes.parts()) {
      parts.emplace(chunk * usual_granule + where.offset, where.size);
    }
    Size reached = 0;
    for (const auto& [offset, size] : parts) {
      ASSERT_EQ(offset, reached) << block;
      reached += size;
    }
    ASSERT_EQ(reached, all) << block;
    ASSERT_EQ(stripes.parts().size(), parts.size()) << block;
    ASSERT_LE((all - stripes.blocks() * block) * 64, all) << block;
  }
}

// The stripes' free ranges must not join: each lies at its own offset of a granule.
TEST(StripesOfChunks, AreNeverAdjacentInARow) {
  for (const Size block : {64 * KiB, 100 * KiB, 256 * KiB, 300 * KiB, 508 * KiB}) {
    const Stripes unrotated = stripes_for(block, 1024);
    for (Size first = 0; first < unrotated.count(); ++first) {
      const Stripes stripes = unrotated.rotated(first);
      const std::vector<Stretch> row = stripes.stretches();
      ASSERT_EQ(row.size(), stripes.count());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const Size next = i + 1 < row.size()
                              ? row[i + 1].offset
                              : stripes.parts().size() * usual_granule + row[0].offset;
        ASSERT_LT(row[i].end(), next) << block;
        ASSERT_GE(row[i].size, block);
      }
    }
  }
}

TEST(StripesOfChunks, AreShorterWhereThereAreFewChunks) {
  const auto a_chunk = [](Size block, Size chunks) {
    return stripes_for(block, chunks).parts().size();
  };
  EXPECT_EQ(a_chunk(64 * KiB, 1024), 8);
  EXPECT_EQ(a_chunk(64 * KiB, 4096), 6);
  EXPECT_EQ(a_chunk(64 * KiB, 8192), 4);
  EXPECT_EQ(a_chunk(64 * KiB, 65536), 4);
  EXPECT_EQ(a_chunk(256 * KiB, 1), 8);
  EXPECT_EQ(a_chunk(256 * KiB, 65536), 4);
}

TEST(StripesOfChunks, ReachAsFarInChunksOfThousandsOfBlocks) {
  EXPECT_EQ(Stripes::blocks_a_stripe(64 * KiB, 64 * MiB, 1024), 128);
  EXPECT_EQ(Stripes::blocks_a_stripe(4 * KiB, 64 * MiB, 1024), 2048);
}

TEST(StripesOfChunks, AreNotForAFewBlocksThatFillAGranule) {
  for (const Size block : {512 * KiB, 1024 * KiB, 1025 * KiB, 2048 * KiB}) {
    EXPECT_FALSE(Stripes::are_for(block, usual_granule)) << block;
  }
}

class ArenaStripes : public ArenaTest {
 protected:
  ArenaWorld& given_stripes(Size granules, const ArenaWorld::Given& how = {}) {
    ArenaWorld::Given all = how;
    all.limit_granules = granules;
    all.reserve_granules = granules * 16;
    all.compacts = all.spreads = true;
    return given(all);
  }
  // Fills the memory with such blocks.
  std::vector<Block*> filled(Size size) {
    std::vector<Block*> blocks;
    while (blocks.size() * size + size <= world().granules(world().chosen.limit_granules)) {
      const auto had = world().arena().allocate(size, 1);
      if (!had.ok()) break;
      fill(**had);
      blocks.push_back(*had);
    }
    return blocks;
  }
  void fill(const Block& block) { fill_pattern(block.address(), block.granted(), block.address()); }
  void expect_intact(const std::vector<Block*>& blocks) {
    for (const Block* block : blocks) {
      ASSERT_NO_FATAL_FAILURE(expect_pattern(block->address(), block->granted(), block->address()));
    }
  }
  // Frees a half, and returns how much of it can be had as one block, in percent.
  Size percent_back(std::vector<Block*>& blocks, bool at_random);
  void expect_comb(Size size, Size percent);
};

TEST_F(ArenaStripes, NeighboursShareAChunkFromTheStart) {
  ArenaWorld& its = given_stripes(64);
  const auto blocks = its.given_blocks(64, 64 * KiB);
  // The first chunk comes before the run is known.
  EXPECT_EQ(its.arena().counters().mapped_chunks, 1 + 8);
  EXPECT_EQ(its.arena().mapped_bytes(), its.granules(2));
  its.check();
  for (const Block* block : blocks) its.expect_intact(*block);
}

TEST_F(ArenaStripes, NeedNoMoreMemoryThanOthers) {
  ArenaWorld& its = given_stripes(64);
  const auto blocks = filled(64 * KiB);
  EXPECT_EQ(blocks.size(), 64 * 32);
  EXPECT_EQ(its.arena().mapped_bytes(), its.granules(64));
  expect_intact(blocks);
}

TEST_F(ArenaStripes, AreGivenBackWhenNothingIsLive) {
  ArenaWorld& its = given_stripes(64);
  for (Block* const block : filled(64 * KiB)) its.free_for_anyone(*block);
  its.arena().trim(0);
  EXPECT_EQ(its.arena().mapped_bytes(), 0);
  EXPECT_EQ(its.arena().counters().free, 0);
}

TEST_F(ArenaStripes, ServeALargeBlockWhenNothingIsLive) {
  ArenaWorld& its = given_stripes(64);
  for (Block* const block : filled(64 * KiB)) its.free_for_anyone(*block);
  Block& large = its.given_block(its.granules(64));
  its.expect_intact(large);
}

TEST_F(ArenaStripes, AreNotLaidForAnArenaThatDoesNotSpread) {
  ArenaWorld& its = given({.limit_granules = 64, .compacts = true});
  its.given_blocks(64, 64 * KiB);
  EXPECT_EQ(its.arena().counters().mapped_chunks, 2);
}

Size ArenaStripes::percent_back(std::vector<Block*>& blocks, bool at_random) {
  std::mt19937_64 random{7};
  std::vector<Block*> live;
  Size freed = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (at_random ? random() % 2 == 0 : i % 2 == 0) {
      live.push_back(blocks[i]);
    } else {
      freed += blocks[i]->granted();
      world().free_for_anyone(*blocks[i]);
    }
  }
  blocks = live;
  Size percent = 100;
  while (percent != 0 && !world().arena().allocate(freed / 100 * percent, 1).ok()) --percent;
  return percent;
}

void ArenaStripes::expect_comb(Size size, Size percent) {
  for (const bool at_random : {false, true}) {
    SCOPED_TRACE(std::to_string(size / KiB) + (at_random ? " KiB at random" : " KiB"));
    given_stripes(256);
    auto blocks = filled(size);
    EXPECT_GE(percent_back(blocks, at_random), percent);
    expect_intact(blocks);
    world().check();
  }
}

TEST_F(ArenaStripes, MostOfACombOf64KiBComesBack) {
  expect_comb(64 * KiB, 85);
}

TEST_F(ArenaStripes, MostOfACombOf100KiBComesBack) {
  expect_comb(100 * KiB, 80);
}

// Its blocks do not begin at the parts of a granule that the plan distinguishes.
TEST_F(ArenaStripes, MostOfACombOf250KiBComesBack) {
  expect_comb(250 * KiB, 80);
}

TEST_F(ArenaStripes, MostOfACombOf256KiBComesBack) {
  expect_comb(256 * KiB, 90);
}

TEST_F(ArenaStripes, PinnedAndPendingMemoryStays) {
  ArenaWorld& its = given_stripes(64, {.wait = Duration{0}});
  its.order.let_waits_succeed(false);
  const auto blocks = filled(64 * KiB);
  std::vector<Block*> live;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      live.push_back(blocks[i]);
    } else {
      its.free(*blocks[i]);
    }
  }
  EXPECT_FALSE(its.arena().allocate(its.granules(4), 2).ok());
  EXPECT_EQ(its.arena().counters().compacted_granules, 0);
  its.order.finish_all();
  for (Block* const block : live) its.arena().pin(*block, pin::sync_memops);
  EXPECT_FALSE(its.arena().allocate(its.granules(4), 2).ok());
  EXPECT_EQ(its.arena().counters().compacted_granules, 0);
  expect_intact(live);
}

// Evicts everything, and restores it in other chunks.
void evict_and_restore(ArenaWorld& world) {
  EvictionSet evicted{.wants = [](const Chunk& chunk) { return chunk.location().is_device(); }};
  world.arena().eviction().begin_eviction(evicted);
  std::vector<std::vector<std::uint8_t>> contents;
  std::set<CUdeviceptr> seen;
  for (EvictedChunk& one : evicted.chunks) {
    EXPECT_TRUE(seen.insert(one.address).second);
    contents.emplace_back(one.size);
    EXPECT_EQ(world.driver.cuMemcpyDtoH(contents.back().data(), one.address, one.size),
              CUDA_SUCCESS);
    EXPECT_OK(world.arena().eviction().take_out(one));
  }
  EXPECT_EQ(world.budget->committed_bytes(), world.store.counters(world.here).physical_free);
  for (std::size_t i = 0; i < evicted.chunks.size(); ++i) {
    EvictedChunk& one = evicted.chunks[i];
    one.chunk = GIVEN_VALUE(world.store.take({one.size, one.home, one.exportable}));
    EXPECT_OK(world.arena().eviction().put_back({&one, 1}));
    EXPECT_EQ(world.driver.cuMemcpyHtoD(one.address, contents[i].data(), one.size), CUDA_SUCCESS);
  }
  world.arena().eviction().end_eviction();
}

TEST_F(ArenaStripes, AreEvictedAndRestoredAsOneChunk) {
  ArenaWorld& its = given_stripes(64);
  auto blocks = filled(64 * KiB);
  evict_and_restore(its);
  expect_intact(blocks);
  its.check();
  EXPECT_GE(percent_back(blocks, true), 60);
  evict_and_restore(its);
  expect_intact(blocks);
}

// A row of stripes may come to lie beside memory that is free already.
TEST_F(ArenaStripes, AreJoinedWithWhatIsFreeBesideThem) {
  for (const Size size : {100 * KiB, 256 * KiB, 300 * KiB}) {
    ArenaWorld its{
        driver(),
        {.limit_granules = 64, .reserve_granules = 64 * 16, .compacts = true, .spreads = true}};
    std::vector<Block*> live;
    for (int round = 0; round < 12; ++round) {
      // Leaves some of its last granule free, beside what follows.
      live.push_back(its.arena().allocate(its.granules(2) - 32 * KiB, 1).value());
      for (int count = 0; count < 12; ++count) {
        live.push_back(its.arena().allocate(size, 1).value());
        ASSERT_EQ(its.arena().violation().value_or("nothing"), "nothing");
      }
    }
    for (Block* const block : live) its.free_for_anyone(*block);
    EXPECT_EQ(its.arena().violation().value_or("nothing"), "nothing");
  }
}

// Runs of equal blocks are allocated and freed at random, live memory moves at random, everything
// is evicted at random, and now and then the driver refuses a call.
TEST_F(ArenaStripes, RandomRunsKeepEveryByte) {
  for (std::uint64_t seed = 1; seed <= scaled(1); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random{seed};
    const auto below = [&](Size bound) { return random() % bound; };
    FaultyDriver faulty{driver()};
    ArenaWorld its{
        faulty,
        {.limit_granules = 48, .reserve_granules = 48 * 16, .compacts = true, .spreads = true}};
    std::vector<Block*> live;
    Size moved = 0;
    for (int step = 0; step < 150; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const bool fails = below(4) == 0;
      if (fails) faulty.fail_call(1 + below(30), CUDA_ERROR_UNKNOWN);
      switch (below(6)) {
        case 0:
        case 1: {
          constexpr std::array<Size, 6> sizes{64 * KiB,  96 * KiB,  100 * KiB,
                                              128 * KiB, 256 * KiB, 300 * KiB};
          const Size size = sizes[below(sizes.size())];
          for (Size i = 8 + below(100); i > 0; --i) {
            const auto had = its.arena().allocate(size, 1 + below(2));
            if (!had.ok()) break;
            fill(**had);
            live.push_back(*had);
          }
          break;
        }
        case 2:
          if (const auto had = its.arena().allocate(its.granules(1 + below(12)), 1); had.ok()) {
            fill(**had);
            live.push_back(*had);
          }
          break;
        case 3:
          std::shuffle(live.begin(), live.end(), random);
          for (Size i = live.size() * below(8) / 8; i > 0; --i) {
            below(2) == 0 ? its.free_for_anyone(*live.back())
                          : its.free(*live.back(), live.back()->stream);
            live.pop_back();
          }
          its.order.finish_all();
          break;
        case 4: {
          const auto freed = its.compactor.compact(its.granules(1 + below(24)));
          if (freed.ok()) moved += *freed;
          break;
        }
        default:
          if (below(3) != 0) {
            its.arena().trim(its.granules(below(48)));
          } else {
            faulty.stop_failing();
            evict_and_restore(its);
          }
      }
      faulty.stop_failing();
      its.arena().trim(unlimited);  // repairs what the driver refused
      ASSERT_NO_FATAL_FAILURE(expect_intact(live));
      ASSERT_EQ(its.arena().violation().value_or("nothing"), "nothing");
      ASSERT_EQ(its.store.violation().value_or("nothing"), "nothing");
      ASSERT_LE(its.budget->committed_bytes(), its.granules(48));
    }
    EXPECT_GT(moved, 0);
    for (Block* const block : live) its.free_for_anyone(*block);
    its.arena().trim(0);
    EXPECT_EQ(its.arena().mapped_bytes(), 0);
  }
}

}  // namespace
}  // namespace cuvmm::test
