// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "view/live_blocks.hpp"
#include "view/memory_walk.hpp"
#include "view/recorded.hpp"

namespace cuvmm::test {
namespace {

using view::LiveBlock;
using view::LiveBlocks;
using view::MemorySums;
using view::MemoryWalk;

TEST(LiveBlocks, MatchAMap) {
  std::mt19937_64 random{7};
  LiveBlocks blocks;
  std::map<std::uint64_t, Size> expected;
  for (int step = 0; step < 50'000; ++step) {
    const std::uint64_t address = (1 + random() % 3000) * 4096;
    const auto taken = blocks.take(address);
    const auto known = expected.find(address);
    ASSERT_EQ(taken.has_value(), known != expected.end());
    if (taken) {
      ASSERT_EQ(taken->requested, known->second);
      expected.erase(known);
    } else {
      const Size size = random() % 1000;
      blocks.add({.address = address, .requested = size});
      expected[address] = size;
    }
    ASSERT_EQ(blocks.count(), expected.size());
  }
  std::size_t seen = 0;
  blocks.for_each([&](const LiveBlock& block) {
    ++seen;
    EXPECT_EQ(block.requested, expected.at(block.address));
  });
  EXPECT_EQ(seen, expected.size());
}

TEST(LiveBlocks, HoldNothingAtNoAddress) {
  LiveBlocks blocks;
  EXPECT_FALSE(blocks.take(0).has_value());
  EXPECT_EQ(blocks.find(0), nullptr);
}

class Told final : public view::MemorySink {
 public:
  void began(const LiveBlock&) override { ++begun; }
  void ended(const LiveBlock&, std::uint64_t) override { ++gone; }
  int begun = 0;
  int gone = 0;
};

MemorySums sums_after(const std::vector<TraceRecord>& records) {
  Told told;
  MemoryWalk walk{told};
  for (const TraceRecord& record : records) walk.add(record);
  return walk.sums();
}

TEST(MemoryWalk, CountsNativeMemoryAsPhysical) {
  EXPECT_EQ(sums_after({allocated(1, 4096, 100), allocated(2, 8192, 50), freed(3, 4096)}),
            (MemorySums{.requested = 50, .granted = 50, .physical = 50}));
}

TEST(MemoryWalk, CountsChunksByThemselves) {
  const TraceRecord create{.event = TraceEvent::Create, .size = 2 * MiB, .other = 5};
  const TraceRecord release{.event = TraceEvent::Release, .other = 5};
  EXPECT_EQ(sums_after({create, allocated(1, 4096, 100, 0)}),
            (MemorySums{.requested = 100, .granted = 100, .physical = 2 * MiB}));
  EXPECT_EQ(sums_after({create, release}), MemorySums{});
}

TEST(MemoryWalk, ForgetsABlockWhoseFreeWasLost) {
  EXPECT_EQ(sums_after({allocated(1, 4096, 100), allocated(2, 4096, 30)}).requested, 30U);
}

TEST(MemoryWalk, LeavesOutOtherMemory) {
  for (const std::uint16_t flag :
       {trace_flag::on_host, trace_flag::managed, trace_flag::captured}) {
    EXPECT_EQ(sums_after({allocated(1, 4096, 100, flag)}), MemorySums{});
  }
}

TEST(MemoryWalk, EndsBlockingMemoryWithItsContext) {
  TraceRecord pooled = allocated(2, 8192, 50, trace_flag::native | trace_flag::stream_ordered);
  const TraceRecord destroy{.event = TraceEvent::ContextDestroy, .device = 0, .context = 1};
  EXPECT_EQ(sums_after({allocated(1, 4096, 100), pooled, destroy}).requested, 50U);

  TraceRecord refused = destroy;
  refused.result = 201;
  EXPECT_EQ(sums_after({allocated(1, 4096, 100), refused}).requested, 100U);
  TraceRecord other = destroy;
  other.context = 2;
  EXPECT_EQ(sums_after({allocated(1, 4096, 100), other}).requested, 100U);
}

TEST(MemoryWalk, EndsThePrimaryContextWithItsLastReleaseOrItsReset) {
  const TraceRecord retain{.event = TraceEvent::PrimaryRetain, .device = 0, .context = 1};
  const TraceRecord release{.event = TraceEvent::PrimaryRelease, .device = 0};
  const TraceRecord reset{.event = TraceEvent::PrimaryReset, .device = 0};
  const TraceRecord block = allocated(1, 4096, 100);
  EXPECT_EQ(sums_after({retain, retain, block, release}).requested, 100U);
  EXPECT_EQ(sums_after({retain, retain, block, release, release}).requested, 0U);
  EXPECT_EQ(sums_after({retain, retain, block, reset}).requested, 0U);
}

TEST(MemoryWalk, FollowsOneDevice) {
  Told told;
  MemoryWalk walk{told, std::int16_t{1}};
  TraceRecord there = allocated(1, 4096, 100);
  there.device = 1;
  walk.add(there);
  walk.add(allocated(2, 8192, 100));
  EXPECT_EQ(told.begun, 1);
  walk.add(freed(3, 4096));  // by a thread whose current context is of another device
  EXPECT_EQ(told.gone, 1);
}

TEST(MemoryWalk, TakesNumbersThatMakeNoSense) {
  const std::uint64_t last = ~std::uint64_t{0};
  EXPECT_EQ(sums_after({allocated(1, last, last), freed(2, last)}), MemorySums{});
  sums_after({mapped(1, last, last, 1),
              unmapped(2, last - 5, last),
              {.event = TraceEvent::Move, .address = last, .size = last, .other = 3}});
}

}  // namespace
}  // namespace cuvmm::test
