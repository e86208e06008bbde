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
  void mapped(const view::Span& span, std::uint64_t, std::uint64_t) override {
    mapped_bytes += span.size();
  }
  void unmapped(const view::Span& span, std::uint64_t) override { mapped_bytes -= span.size(); }
  int begun = 0;
  int gone = 0;
  Size mapped_bytes = 0;
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

TraceRecord of_program(TraceRecord record, std::int16_t device = 0) {
  record.flags |= trace_flag::native;
  record.device = device;
  return record;
}
constexpr std::uint64_t somewhere = 0x1000'0000;
const TraceRecord program_creates =
    of_program({.event = TraceEvent::Create, .size = 2 * MiB, .other = 5});
const TraceRecord program_releases = of_program({.event = TraceEvent::Release, .other = 5});
const TraceRecord program_maps = of_program(mapped(2, somewhere, 2 * MiB, 5));
const TraceRecord program_unmaps = of_program(unmapped(4, somewhere, 2 * MiB));

TEST(MemoryWalk, CountsMemorySpilledToAPeerAsPhysicalOfThePeerOnly) {
  const TraceRecord create{
      .time = 1, .event = TraceEvent::Create, .device = 1, .size = 2 * MiB, .other = 7};
  TraceRecord spill = create;
  spill.event = TraceEvent::Spill;
  TraceRecord fetch = create;
  fetch.event = TraceEvent::Fetch;
  EXPECT_EQ(sums_after({create, spill}).physical, 0U);
  EXPECT_EQ(sums_after({create, spill, fetch}).physical, 2 * MiB);
  Told told;
  MemoryWalk peer{told, std::int16_t{1}};
  peer.add(create);
  peer.add(spill);
  EXPECT_EQ(peer.sums().physical, 2 * MiB);
}

TEST(MemoryWalk, CountsAProgramsChunkUntilItIsReleasedAndUnmapped) {
  const auto physical_after = [](const std::vector<TraceRecord>& records) {
    return sums_after(records).physical;
  };
  EXPECT_EQ(physical_after({program_creates, program_releases}), 0U);
  EXPECT_EQ(physical_after({program_creates, program_maps, program_releases}), 2 * MiB);
  EXPECT_EQ(physical_after({program_creates, program_maps, program_unmaps}), 2 * MiB);
  EXPECT_EQ(physical_after({program_creates, program_maps, program_releases, program_unmaps}), 0U);
  // The driver may give the handle to another chunk.
  EXPECT_EQ(physical_after({program_creates, program_maps, program_releases, program_creates}),
            4 * MiB);
  TraceRecord again = program_maps;
  again.address += 2 * MiB;
  EXPECT_EQ(
      physical_after({program_creates, program_maps, again, program_releases, program_unmaps}),
      2 * MiB);
  const TraceRecord retain{.event = TraceEvent::HandleRetain, .address = somewhere, .other = 5};
  EXPECT_EQ(
      physical_after({program_creates, program_maps, retain, program_releases, program_unmaps}),
      2 * MiB);
  EXPECT_EQ(physical_after({program_creates, program_maps, program_releases, retain,
                            program_releases, program_unmaps}),
            0U);
}

TEST(MemoryWalk, FollowsAProgramsChunkThatLeavesItsDevice) {
  TraceRecord leaves = program_releases;
  leaves.size = 2 * MiB;
  for (const bool has_handle : {true, false}) {
    std::vector<TraceRecord> records{program_creates, program_maps};
    TraceRecord returns = program_creates;
    if (!has_handle) {
      records.push_back(program_releases);
      leaves.other = returns.other = 0;
      leaves.address = returns.address = somewhere;
    }
    records.push_back(leaves);
    EXPECT_EQ(sums_after(records).physical, 0U);
    records.push_back(returns);
    EXPECT_EQ(sums_after(records).physical, 2 * MiB);
    records.push_back(program_unmaps);
    if (has_handle) records.push_back(program_releases);
    EXPECT_EQ(sums_after(records).physical, 0U);
  }
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

// The calls need no context, so the thread's current device may be another one, or none.
TEST(MemoryWalk, FollowsAProgramsChunkWhateverTheCurrentDevice) {
  Told told;
  MemoryWalk walk{told, std::int16_t{1}};
  walk.add(of_program(program_creates, 1));
  walk.add(of_program(program_maps, no_device));
  walk.add(of_program(program_releases, 0));
  EXPECT_EQ(told.mapped_bytes, 2 * MiB);
  EXPECT_EQ(walk.sums().physical, 2 * MiB);
  walk.add(of_program(program_unmaps, 0));
  EXPECT_EQ(told.mapped_bytes, 0U);
  EXPECT_EQ(walk.sums().physical, 0U);
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
