// SPDX-License-Identifier: Apache-2.0
// The parts of an arena, without a driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "alloc/arena/chunk_policy.hpp"
#include "alloc/arena/gap_fill.hpp"
#include "alloc/arena/layout.hpp"
#include "alloc/arena/size_index.hpp"
#include "alloc/arena/stream_cache.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

using arena::GapFill;
using arena::Layout;
using arena::Range;
using arena::SizeIndex;
using arena::StreamCache;
using arena::TileKind;

const auto any_range = [](const Range&) { return true; };

TEST(ArenaSizeIndex, FindsTheSmallestSufficientRange) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  SizeIndex index;
  std::vector<std::unique_ptr<Range>> ranges;
  for (std::uint64_t i = 0; i < scaled(3000); ++i) {
    const int power = static_cast<int>(random() % 24);
    if (ranges.empty() || random() % 3 != 0) {
      auto range = std::make_unique<Range>();
      range->where = {i * 512, 512 * (1 + random() % (Size{1} << power))};
      index.add(*range);
      ranges.push_back(std::move(range));
    } else {
      std::swap(ranges[random() % ranges.size()], ranges.back());
      index.remove(*ranges.back());
      ranges.pop_back();
    }
    const Size wanted = 512 * (1 + random() % (Size{1} << power));
    Size best = unlimited;
    Size largest = 0;
    for (const auto& range : ranges) {
      if (range->size() >= wanted) best = std::min(best, range->size());
      largest = std::max(largest, range->size());
    }
    const Range* const found = index.best_fit(wanted, arena::endless, any_range);
    ASSERT_EQ(found != nullptr ? found->size() : unlimited, best);
    ASSERT_EQ(index.largest(), largest);
    ASSERT_EQ(index.count(), ranges.size());
  }
}

TEST(ArenaSizeIndex, SkipsRejectedRanges) {
  SizeIndex index;
  std::array<Range, 3> ranges;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].where = {i * MiB, (i + 1) * 64 * KiB};
    index.add(ranges[i]);
  }
  EXPECT_EQ(index.best_fit(512, arena::endless, [&](const Range& r) { return &r != &ranges[0]; }),
            &ranges[1]);
  EXPECT_EQ(index.best_fit(512, arena::endless, [](const Range&) { return false; }), nullptr);
}

TEST(ArenaLayout, NeighboursAreOneAgainAfterACut) {
  Layout layout{0x10000000, 64 * MiB, 2 * MiB};
  Range& hole = *layout.tail();
  Range& part = layout.cut(hole, {8 * MiB, 4 * MiB});
  layout.turn_into(part, TileKind::Free);
  EXPECT_EQ(layout.violation().value_or("nothing"), "nothing");
  EXPECT_EQ(layout.holes().count(), 2u);
  EXPECT_EQ(layout.free().bytes(), 4 * MiB);
  layout.turn_into(part, TileKind::Hole);
  layout.join(part);
  EXPECT_EQ(layout.holes().count(), 1u);
  EXPECT_EQ(layout.violation().value_or("nothing"), "nothing");
}

TEST(ArenaLayout, TheWalkFindsViolations) {
  Layout layout{0x10000000, 64 * MiB, 2 * MiB};
  Range& part = layout.cut(*layout.tail(), {0, 4 * MiB});
  EXPECT_NE(layout.violation(), std::nullopt) << "two holes side by side";
  layout.turn_into(part, TileKind::Free);
  EXPECT_EQ(layout.violation(), std::nullopt);
  part.where.size -= 512;
  EXPECT_NE(layout.violation(), std::nullopt) << "a byte that is nowhere";
  part.where.size += 512;
  part.freeing.ticket = {3, 1};
  EXPECT_NE(layout.violation(), std::nullopt) << "in another stream's index";
  part.freeing.ticket = {};
}

TEST(ArenaLayout, AJoinedRangeIsAsYoungAsItsYoungestPart) {
  Layout layout{0, 64 * MiB, 2 * MiB};
  Range& all = layout.cut(*layout.tail(), {0, 12 * MiB});
  layout.turn_into(all, TileKind::Free);
  std::vector<Block*> blocks;
  blocks.reserve(6);
  for (int i = 0; i < 6; ++i) {
    blocks.push_back(&layout.carve(*layout.free().best_fit(no_stream, 2 * MiB, 1), 2 * MiB, 1));
  }
  layout.give_back(*blocks[0], {});
  layout.give_back(*blocks[4], {});
  layout.give_back(*blocks[1], {});  // joins the first
  EXPECT_EQ(layout.free().by_age().oldest()->begin(), 8 * MiB);
  EXPECT_EQ(layout.free().by_age().newest()->begin(), 0u);
  EXPECT_EQ(layout.violation().value_or("nothing"), "nothing");
}

// Knows how far the device has come with each stream, and counts the questions.
class CountingOrder final : public StreamOrder {
 public:
  bool is_before(const FreeTicket& freed, StreamId asker) const override {
    return freed.stream == asker || is_done(freed);
  }
  bool is_done(const FreeTicket& freed) const override {
    ++questions;
    const auto found = reached.find(freed.stream);
    return freed.is_for_anyone() || (found != reached.end() && freed.tick <= found->second);
  }
  void look(StreamId) override {}
  bool wait(const FreeTicket& freed, std::uint64_t) override { return is_done(freed); }

  std::map<StreamId, std::uint64_t> reached;
  mutable std::size_t questions = 0;
};

// Frees that other streams handed over do not join, so a stream may own thousands of ranges.
class ManyPendingFrees : public ::testing::Test {
 protected:
  static constexpr std::size_t count = 1024;  // whole chunks
  static constexpr StreamId allocating = 1;
  static constexpr StreamId freeing = 2;

  ManyPendingFrees() {
    layout.turn_into(layout.cut(*layout.tail(), {0, count * 64 * KiB}), TileKind::Free);
    std::vector<Block*> blocks;
    for (std::size_t i = 0; i < count; ++i) {
      Range* const from = layout.free().best_fit(no_stream, 64 * KiB, 1);
      blocks.push_back(&layout.carve(*from, 64 * KiB, allocating));
    }
    std::mt19937_64 random{7};
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (std::size_t i = 0; i < count; ++i) layout.give_back(*blocks[i], {freeing, i + 1});
  }
  Size for_anyone() const { return layout.free().for_anyone().bytes(); }

  Layout layout{0, 64 * MiB, 2 * MiB};
  CountingOrder order;
};

TEST_F(ManyPendingFrees, CostOneQuestionWhileTheDeviceHasReachedNone) {
  layout.settle(order);
  EXPECT_EQ(order.questions, 1U);
  EXPECT_EQ(for_anyone(), 0U);
}

TEST_F(ManyPendingFrees, AreForAnyoneAsFarAsTheDeviceHasCome) {
  for (const std::size_t reached : {std::size_t{1}, count / 3, count / 3, count - 1, count}) {
    order.reached[freeing] = reached;
    order.questions = 0;
    layout.settle(order);
    EXPECT_EQ(for_anyone(), reached * 64 * KiB);
    EXPECT_EQ(layout.violation().value_or("nothing"), "nothing");
    EXPECT_LT(order.questions, 20U);
  }
}

TEST(ArenaGapFill, LaysChunksFromBothEndsOfAHole) {
  Range first;
  first.where = {0, 8 * MiB};
  Range second;
  second.where = {16 * MiB, 16 * MiB};
  const arena::AllocationSpan span{
      .where = {2 * MiB, 18 * MiB},
      .missing = 10 * MiB,
      .gaps = {{&first, {2 * MiB, 6 * MiB}}, {&second, {16 * MiB, 4 * MiB}}}};
  GapFill fill{span};
  EXPECT_FALSE(fill.lay(32 * MiB).has_value());
  EXPECT_EQ(fill.lay(4 * MiB)->offset, 4 * MiB) << "at the back of the first";
  EXPECT_EQ(fill.lay(8 * MiB)->offset, 16 * MiB) << "does not fit there any more";
  ASSERT_EQ(fill.lacks().size(), 1u);
  EXPECT_EQ(fill.lacks()[0].need, 2 * MiB);
  EXPECT_EQ(fill.lacks()[0].room, 4 * MiB);
  EXPECT_EQ(fill.lay(2 * MiB)->offset, 2 * MiB);
  EXPECT_TRUE(fill.is_complete());
  EXPECT_FALSE(fill.lay(2 * MiB).has_value());
}

TEST(ArenaStreamCache, IsExactInSizeAndStream) {
  StreamCache cache;
  std::array<Block, 3> blocks;
  const auto put = [&](Block& block, Size size, StreamId stream) {
    block.place(0x1000, size);
    block.stream = stream;
    ASSERT_TRUE(cache.put(block, 7, {}));
  };
  const Holding holding = cache.lock();
  put(blocks[0], 1024, 1);
  put(blocks[1], 1024, 65);
  put(blocks[2], 2048, 1);
  EXPECT_EQ(cache.violation().value_or("nothing"), "nothing");
  EXPECT_EQ(cache.take(512, 1), nullptr);
  EXPECT_EQ(cache.take(2048, 65), nullptr);
  EXPECT_EQ(cache.take(1024, 65), &blocks[1]);
  EXPECT_EQ(cache.take(1024, 65), nullptr);
  EXPECT_EQ(cache.bytes(), 3072u);
  std::vector<Block*> gone;
  cache.empty_into([&](Block& block, const FreeTicket& since) {
    EXPECT_EQ(since, (FreeTicket{1, 7}));
    gone.push_back(&block);
  });
  EXPECT_EQ(gone.size(), 2u);
  EXPECT_TRUE(cache.is_empty());
  EXPECT_EQ(cache.take(1024, 1), nullptr);
}

TEST(ArenaStreamCache, HasBounds) {
  StreamCache cache;
  std::vector<Block> blocks(600);
  const Holding holding = cache.lock();
  std::size_t kept = 0;
  for (Block& block : blocks) {
    block.place(0x1000, 512 * (1 + static_cast<Size>(&block - blocks.data())));
    block.stream = 1;
    if (cache.put(block, 1, {})) ++kept;
  }
  EXPECT_EQ(kept, 512u) << "so many sizes";
  EXPECT_FALSE(cache.put(blocks[599], 1, {.blocks = 512}));
  EXPECT_FALSE(cache.put(blocks[0], 1, {.bytes = cache.bytes() + 511}));
}

TEST(ArenaChunkPolicy, StartsLargeAndEndsSmall) {
  const ChunkPolicy policy;
  const auto chosen = [&](Size need, Size room, Size held, Size mapped) {
    return policy.choose(need, unlimited, 2 * MiB, Grow::Loose, {held, room, mapped});
  };
  EXPECT_EQ(chosen(10 * GiB, 140 * GiB, 0, 0), 64 * MiB);
  EXPECT_EQ(chosen(3 * MiB, 140 * GiB, 0, 0), 2 * MiB) << "a small arena takes little";
  EXPECT_EQ(chosen(3 * MiB, 140 * GiB, 4 * GiB, 4 * GiB), 64 * MiB);
  EXPECT_EQ(chosen(1 * GiB, 16 * GiB, 0, 0), 8 * MiB);
  EXPECT_EQ(chosen(1 * GiB, 1 * GiB, 15 * GiB, 15 * GiB), 2 * MiB);
  EXPECT_EQ(chosen(1 * GiB, 0, 16 * GiB, 16 * GiB), 2 * MiB);
}

TEST(ArenaChunkPolicy, KeepsToTheGapAndTightToTheNeed) {
  const ChunkPolicy policy;
  const ChunkPolicy::Supply plenty{4 * GiB, 140 * GiB, 4 * GiB};
  EXPECT_EQ(policy.choose(100 * MiB, 10 * MiB, 2 * MiB, Grow::Loose, plenty), 8 * MiB);
  EXPECT_EQ(policy.choose(10 * MiB, 1 * GiB, 2 * MiB, Grow::Tight, plenty), 8 * MiB);
  EXPECT_EQ(policy.choose(1 * MiB, 1 * GiB, 2 * MiB, Grow::Tight, plenty), 2 * MiB);
  EXPECT_EQ(policy.choose(100 * MiB, 100 * MiB, 20 * MiB, Grow::Tight, plenty), 40 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
