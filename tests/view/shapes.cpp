// SPDX-License-Identifier: Apache-2.0
// Spans, rasters, mapped memory, and how full memory is.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "view/mapped_memory.hpp"
#include "view/occupancy.hpp"
#include "view/raster.hpp"
#include "view/spans.hpp"

namespace cuvmm::test {
namespace {

using view::CollapsedAddresses;
using view::LiveBlocks;
using view::MappedMemory;
using view::OccupancyCounter;
using view::Raster;
using view::Span;
using view::SpanSet;

TEST(SpanSet, MatchesASetOfAddresses) {
  std::mt19937_64 random{11};
  SpanSet spans;
  std::set<std::uint64_t> expected;
  for (int step = 0; step < 4000; ++step) {
    const std::uint64_t begin = random() % 300;
    const Span span{begin, begin + random() % 20};
    const bool adds = random() % 2 == 0;
    for (std::uint64_t at = span.begin; at < span.end; ++at) {
      if (adds) expected.insert(at);
      if (!adds) expected.erase(at);
    }
    if (adds) spans.add(span);
    if (!adds) spans.remove(span);
    ASSERT_EQ(spans.size(), expected.size());
    std::size_t inside = 0;
    std::uint64_t before = 0;
    for (const Span& one : spans.all()) {
      ASSERT_TRUE(one.begin > before || before == 0) << "spans touch";
      ASSERT_LT(one.begin, one.end);
      for (std::uint64_t at = one.begin; at < one.end; ++at) inside += expected.count(at);
      before = one.end;
    }
    ASSERT_EQ(inside, expected.size());
  }
}

TEST(CollapsedAddresses, LeaveOutTheGaps) {
  const CollapsedAddresses collapsed{{{100, 200}, {205, 300}, {1000, 1100}}, 10};
  ASSERT_EQ(collapsed.parts().size(), 2U);
  EXPECT_EQ(collapsed.size(), 300U);
  std::vector<Span> pieces;
  collapsed.for_each_piece({150, 1050}, [&](Size begin, Size end) {
    pieces.push_back({begin, end});
  });
  EXPECT_EQ(pieces, (std::vector<Span>{{50, 200}, {200, 250}}));
}

TEST(Raster, KnowsHowMuchOfEachCellIsCovered) {
  Raster raster{3, 2};
  raster.add(0.5, 2, 0, 1);     // half of the first cell, all of the second, below
  raster.add(2.25, 2.5, 1, 2);  // a quarter of the last, above
  EXPECT_EQ(raster.cover(), (std::vector<std::uint8_t>{128, 255, 0, 0, 0, 64}));
}

TEST(Raster, AgreesWithCountingCellByCell) {
  std::mt19937_64 random{3};
  constexpr int size = 20;
  Raster raster{size, size};
  std::vector<double> expected(size * size, 0.0);
  std::uniform_real_distribution<double> place{-3, size + 3};
  for (int i = 0; i < 30; ++i) {
    double left = place(random), right = place(random), bottom = place(random), top = place(random);
    if (left > right) std::swap(left, right);
    if (bottom > top) std::swap(bottom, top);
    raster.add(left, right, bottom, top);
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const double wide = std::max(0.0, std::min(right, x + 1.0) - std::max(left, double(x)));
        const double high = std::max(0.0, std::min(top, y + 1.0) - std::max(bottom, double(y)));
        expected[static_cast<std::size_t>(y) * size + static_cast<std::size_t>(x)] += wide * high;
      }
    }
  }
  const auto cells = raster.cover();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    EXPECT_NEAR(cells[i], std::min(1.0, expected[i]) * 255, 1.01) << i;
  }
}

TEST(MappedMemory, IsCutWhereAPartGoes) {
  MappedMemory memory;
  std::vector<Span> gone;
  const auto note = [&](const MappedMemory::Piece& piece) { gone.push_back(piece.span); };
  memory.map({0, 100}, 1, 0, note);
  memory.unmap({40, 60}, note);
  EXPECT_EQ(gone, (std::vector<Span>{{40, 60}}));
  EXPECT_EQ(memory.bytes(), 80U);
  EXPECT_EQ(memory.at(39)->span, (Span{0, 40}));
  EXPECT_EQ(memory.at(50), nullptr);
  memory.map({30, 70}, 2, 5, note);
  EXPECT_EQ(memory.bytes(), 100U);
  EXPECT_EQ(memory.at(65)->chunk, 2U);
}

constexpr std::uint64_t began_at = 0x7f0000000000;

LiveBlocks comb(Size block, Size whole, std::uint16_t flags) {
  LiveBlocks live;
  for (Size at = 0; at < whole; at += 2 * block) {
    live.add({.address = began_at + at, .requested = block, .granted = block, .flags = flags});
  }
  return live;
}

TEST(Occupancy, OfEmptyMemoryIsUnfragmented) {
  const auto empty = OccupancyCounter{}.count({}, {}, 64 * MiB);
  EXPECT_EQ(empty.free, 64 * MiB);
  EXPECT_EQ(empty.in_one_piece, 64 * MiB);
  EXPECT_EQ(empty.fragmentation(), 0);
}

// Measured: after a comb of 1 MiB blocks the driver has nothing in one piece; after one of 2 MiB
// blocks it has all that is free.
TEST(Occupancy, KnowsWhatTheDriverCanPutTogether) {
  const auto small =
      OccupancyCounter{}.count(comb(MiB, 64 * MiB, trace_flag::native), {}, 64 * MiB);
  EXPECT_EQ(small.free, 32 * MiB);
  EXPECT_EQ(small.in_one_piece, 0U);
  EXPECT_EQ(small.fragmentation(), 1);
  const auto large =
      OccupancyCounter{}.count(comb(2 * MiB, 64 * MiB, trace_flag::native), {}, 64 * MiB);
  EXPECT_EQ(large.fragmentation(), 0);
}

// Windows: each block has its own addresses, and two share a chunk.
TEST(Occupancy, CountsAChunkOnceHoweverManyWindowsShareIt) {
  LiveBlocks live;
  MappedMemory mapped;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::uint64_t window = began_at + i * 2 * MiB;
    mapped.map({window, window + 2 * MiB}, 10 + i / 2, 0, [](const auto&) {});
    live.add({.address = window + i % 2 * MiB, .requested = MiB, .granted = MiB});
  }
  const auto full = OccupancyCounter{}.count(live, mapped, 8 * MiB);
  EXPECT_EQ(full.free, 4 * MiB);
  EXPECT_EQ(full.in_one_piece, 4 * MiB);
  live.take(began_at + 2 * MiB + MiB);
  const auto half = OccupancyCounter{}.count(live, mapped, 8 * MiB);
  EXPECT_EQ(half.free, 5 * MiB);
  EXPECT_EQ(half.in_one_piece, 4 * MiB);
}

TEST(Occupancy, CountsTheMiddleOfALargeBlockOnce) {
  LiveBlocks live;
  live.add({.address = began_at + MiB,
            .requested = 20 * MiB,
            .granted = 20 * MiB,
            .flags = trace_flag::native});
  const auto occupancy = OccupancyCounter{}.count(live, {}, 64 * MiB);
  EXPECT_EQ(occupancy.free, 44 * MiB);
  EXPECT_EQ(occupancy.in_one_piece, 42 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
