// SPDX-License-Identifier: Apache-2.0
// The models of PyTorch's allocator, rule by rule.
#include <gtest/gtest.h>

#include "replay/caching_model.hpp"
#include "replay/expandable_model.hpp"

namespace cuvmm::test {
namespace {

using replay::Action;
using replay::BlockId;
using replay::CachingModel;
using replay::ExpandableModel;

// A policy, and the blocks that a test has allocated from it.
template <class Model>
class World {
 public:
  template <class... Arguments>
  explicit World(Arguments... arguments) : model(arguments...) {}

  BlockId allocate(Size size, StreamId stream = 1) {
    const BlockId id = next_++;
    const auto answer = model.allocate({.size = size, .block = id, .stream = stream});
    EXPECT_TRUE(answer) << print_size(size) << ": " << answer.error().text();
    return id;
  }
  bool is_refused(Size size, StreamId stream = 1) {
    const auto answer = model.allocate({.size = size, .block = next_++, .stream = stream});
    EXPECT_TRUE(answer || answer.error().kind == ErrorKind::OutOfMemory);
    return !answer;
  }
  void free(BlockId id) {
    EXPECT_TRUE(model.release({.block = id, .action = Action::Free})) << "block " << id;
  }
  Size peak() const { return model.counters().physical_peak_bytes; }
  std::uint64_t creates() const { return model.counters().creates; }
  std::uint64_t retries() const { return model.counters().retries; }

  Model model;

 private:
  BlockId next_ = 0;
};

struct Caching : World<CachingModel> {
  explicit Caching(Size limit = unlimited) : World(limit) {}
};
struct Expandable : World<ExpandableModel> {
  explicit Expandable(Size limit = unlimited) : World(limit, GiB) {}
};

TEST(CachingModel, SmallRequestsShareBuffersOf2MiB) {
  Caching world;
  for (int i = 0; i < 4096; ++i) world.allocate(1);  // 512 bytes each
  EXPECT_EQ(world.peak(), 2 * MiB);
  world.allocate(1);
  EXPECT_EQ(world.peak(), 4 * MiB);
}

TEST(CachingModel, RequestsAbove1MiBShareBuffersOf20MiB) {
  Caching world;
  world.allocate(MiB);  // still a small block
  EXPECT_EQ(world.peak(), 2 * MiB);
  world.allocate(MiB + 1);
  EXPECT_EQ(world.peak(), 22 * MiB);
  world.allocate(10 * MiB - 512);
  EXPECT_EQ(world.peak(), 22 * MiB);
}

TEST(CachingModel, From10MiBOnARequestHasABufferOfItsOwn) {
  Caching world;
  world.allocate(10 * MiB);
  EXPECT_EQ(world.peak(), 10 * MiB);
  world.allocate(11 * MiB);
  EXPECT_EQ(world.peak(), 22 * MiB);
}

TEST(CachingModel, RestOf1MiBIsNotCutOffALargeBuffer) {
  Caching world;
  world.allocate(11 * MiB);  // in a buffer of 12 MiB
  world.allocate(MiB + 512);
  EXPECT_EQ(world.creates(), 2u);

  Caching cut;
  cut.free(cut.allocate(20 * MiB));
  cut.allocate(19 * MiB - 512);  // leaves 1 MiB and 512 bytes
  cut.allocate(MiB + 512);
  EXPECT_EQ(cut.creates(), 1u);
}

TEST(CachingModel, SmallestPieceThatFitsIsTaken) {
  Caching world;
  const BlockId large = world.allocate(40 * MiB);
  const BlockId fitting = world.allocate(30 * MiB);
  world.free(large);
  world.free(fitting);
  world.allocate(30 * MiB);
  world.allocate(40 * MiB);
  EXPECT_EQ(world.creates(), 2u);
}

TEST(CachingModel, FreeNeighboursBecomeOne) {
  Caching world;
  const BlockId first = world.allocate(5 * MiB);
  const BlockId second = world.allocate(5 * MiB);
  const BlockId third = world.allocate(5 * MiB);
  const BlockId fourth = world.allocate(5 * MiB);
  EXPECT_EQ(world.creates(), 1u);
  world.free(first);
  world.free(third);
  world.free(second);
  world.allocate(15 * MiB);
  EXPECT_EQ(world.creates(), 1u);
  world.free(fourth);
}

TEST(CachingModel, StreamsDoNotShareBuffers) {
  Caching world;
  world.free(world.allocate(40 * MiB, 1));
  world.allocate(40 * MiB, 2);
  EXPECT_EQ(world.creates(), 2u);
  world.allocate(40 * MiB, 1);
  EXPECT_EQ(world.creates(), 2u);
}

TEST(CachingModel, WholeFreeBuffersAreReleasedWhenTheCardIsFull) {
  Caching world(100 * MiB);
  world.free(world.allocate(60 * MiB));
  world.allocate(80 * MiB);
  EXPECT_EQ(world.retries(), 1u);
  EXPECT_EQ(world.peak(), 80 * MiB);
}

TEST(CachingModel, BufferWithOneBlockInItStays) {
  Caching world(40 * MiB);
  const BlockId first = world.allocate(9 * MiB);
  const BlockId second = world.allocate(9 * MiB);  // in the same 20 MiB
  world.free(first);
  EXPECT_TRUE(world.is_refused(22 * MiB));
  world.free(second);
  EXPECT_FALSE(world.is_refused(22 * MiB));
}

TEST(ExpandableModel, GrowsBySmallAndByLargeGranules) {
  Expandable world;
  world.allocate(512);
  EXPECT_EQ(world.peak(), 2 * MiB);
  world.allocate(MiB + 1);
  EXPECT_EQ(world.peak(), 22 * MiB);
  world.allocate(19 * MiB);
  EXPECT_EQ(world.peak(), 42 * MiB);
  EXPECT_EQ(world.creates(), 3u);
}

TEST(ExpandableModel, LargeGranuleCanBeChosen) {
  World<ExpandableModel> world(unlimited, GiB, 2 * MiB);
  world.allocate(MiB + 1);
  EXPECT_EQ(world.peak(), 2 * MiB);
}

TEST(ExpandableModel, EveryRestIsCutOff) {
  Expandable world;
  world.allocate(20 * MiB - 2 * MiB);
  world.allocate(2 * MiB);
  EXPECT_EQ(world.peak(), 20 * MiB);
}

TEST(ExpandableModel, LastFreePieceGrowsByWhatIsMissing) {
  Expandable world;
  const BlockId block = world.allocate(60 * MiB);
  world.free(block);
  world.allocate(100 * MiB);
  EXPECT_EQ(world.peak(), 100 * MiB);
  EXPECT_EQ(world.creates(), 5u);
}

TEST(ExpandableModel, PieceThatCannotGrowIsTakenFirst) {
  Expandable world;
  const BlockId inner = world.allocate(40 * MiB);
  world.allocate(20 * MiB);
  const BlockId last = world.allocate(30 * MiB);  // leaves 10 MiB of its granules, which can grow
  world.free(inner);
  world.free(last);
  world.allocate(35 * MiB);  // fits into both; the inner one is smaller, and cannot grow
  world.allocate(40 * MiB);
  EXPECT_EQ(world.peak(), 100 * MiB);
}

TEST(ExpandableModel, StreamsAndPoolsHaveTheirOwnBuffers) {
  Expandable world;
  world.free(world.allocate(20 * MiB, 1));
  world.allocate(20 * MiB, 2);
  EXPECT_EQ(world.peak(), 40 * MiB);
  world.allocate(512, 1);
  EXPECT_EQ(world.peak(), 42 * MiB);
}

TEST(ExpandableModel, WholeFreeGranulesAreUnmappedWhenTheCardIsFull) {
  Expandable world(100 * MiB);
  const BlockId hole = world.allocate(60 * MiB);
  world.allocate(20 * MiB);
  world.free(hole);
  world.allocate(70 * MiB);
  EXPECT_EQ(world.retries(), 1u);
  EXPECT_LE(world.peak(), 100 * MiB);
}

TEST(ExpandableModel, GranuleWithOneBlockInItStays) {
  Expandable world(100 * MiB);
  std::vector<BlockId> blocks;
  blocks.reserve(10);
  for (int i = 0; i < 10; ++i) blocks.push_back(world.allocate(10 * MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2) world.free(blocks[i]);
  EXPECT_TRUE(world.is_refused(20 * MiB));
  world.free(blocks[1]);
  EXPECT_FALSE(world.is_refused(20 * MiB));
}

TEST(ExpandableModel, UnmappedPlacesAreMappedAgain) {
  Expandable world(100 * MiB);
  for (int round = 0; round < 50; ++round) {
    const BlockId low = world.allocate(40 * MiB);
    const BlockId high = world.allocate(40 * MiB);
    world.free(low);
    const BlockId large = world.allocate(55 * MiB);
    world.free(high);
    world.free(large);
  }
  EXPECT_LE(world.peak(), 100 * MiB);
}

TEST(Play, SaysWhichEventWasRefused) {
  replay::TraceBuilder builder;
  builder.allocate({.time_us = 1, .address = 0x100, .size = 30 * MiB});
  builder.free(2, 0x100);
  builder.allocate({.time_us = 3, .address = 0x200, .size = 50 * MiB});
  builder.allocate({.time_us = 4, .address = 0x300, .size = 30 * MiB});
  const auto trace = builder.finish();

  CachingModel small{64 * MiB};
  const auto refused = replay::play(trace, small);
  EXPECT_FALSE(refused.completed);
  EXPECT_EQ(refused.events, 3u);
  EXPECT_EQ(refused.refusal.kind, ErrorKind::OutOfMemory);
  EXPECT_EQ(refused.refusal.asked, 30 * MiB);
  EXPECT_EQ(refused.refusal.available, 14 * MiB);

  CachingModel large{128 * MiB};
  const auto played = replay::play(trace, large);
  EXPECT_TRUE(played.completed);
  EXPECT_EQ(played.events, 4u);
  EXPECT_EQ(played.counters.physical_peak_bytes, 80 * MiB);  // the last one where the first was
}

}  // namespace
}  // namespace cuvmm::test
