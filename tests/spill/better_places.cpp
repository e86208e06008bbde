// SPDX-License-Identifier: Apache-2.0
// When memory was last used, and which memory should therefore be near or far.
#include <gtest/gtest.h>

#include "spill/better_places.hpp"

namespace cuvmm::test {
namespace {

constexpr std::uint64_t base = 0x7f00'0000'0000;

PlacedChunk placed(CUmemGenericAllocationHandle chunk, Residency residency, LastUses::Moment last) {
  return {chunk, 2 * MiB, residency, last, true};
}

TEST(PlacesNear, TakeTheRoomThatThereIsAndThenThatOfTheLeastRecentlyUsed) {
  const std::vector<PlacedChunk> chunks{placed(1, Residency::Far, 0), placed(2, Residency::Far, 9),
                                        placed(3, Residency::Near, 7),
                                        placed(4, Residency::Near, 3)};
  const BetterPlaces fits = find_places_near({1, 2}, chunks, {.room_near = 4 * MiB});
  EXPECT_EQ(fits.change, (std::unordered_set<CUmemGenericAllocationHandle>{1, 2}));
  const BetterPlaces swaps =
      find_places_near({1}, chunks, {.room_near = 1 * MiB, .room_far = 4 * MiB});
  EXPECT_EQ(swaps.change, (std::unordered_set<CUmemGenericAllocationHandle>{1, 4}));
  EXPECT_EQ(swaps.in, 2 * MiB);
  EXPECT_EQ(swaps.going, std::vector<Size>{2 * MiB});
}

TEST(PlacesNear, KeepWhatIsNamedAndMoveNothingInVain) {
  const std::vector<PlacedChunk> chunks{placed(1, Residency::Far, 0),
                                        placed(3, Residency::Near, 1)};
  const PlaceBounds full{.room_far = 64 * MiB};
  EXPECT_FALSE(find_places_near({1, 3}, chunks, full).are_any()) << "the other side of a copy";
  EXPECT_FALSE(find_places_near({3}, chunks, full).are_any()) << "it is near";
  EXPECT_FALSE(find_places_near({1}, chunks, {}).are_any()) << "nothing may go out";
}

TEST(LastUsesOfMemory, AreNotedInCoveredRanges) {
  LastUses uses;
  uses.cover(base, 64 * MiB);
  EXPECT_EQ(uses.last_within(base, 64 * MiB), 0u);
  uses.begin_next_moment();
  uses.note(base + 5 * MiB + 7);
  EXPECT_EQ(uses.last_within(base, 4 * MiB), 0u);
  EXPECT_EQ(uses.last_within(base + 4 * MiB, 1), uses.now());
  EXPECT_EQ(uses.last_within(base + 5 * MiB + 8, 1), uses.now()) << "a granule of 2 MiB at a time";
  const LastUses::Moment before = uses.now();
  uses.begin_next_moment();
  uses.note(base + 9 * MiB);
  EXPECT_EQ(uses.last_within(base, 6 * MiB), before);
  EXPECT_EQ(uses.last_within(base, 64 * MiB), uses.now());
}

TEST(LastUsesOfMemory, IgnoreWordsThatAreNoAddresses) {
  LastUses uses;
  uses.cover(base, 2 * MiB);
  for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 48,
                                   base - 1, base + (std::uint64_t{1} << 35)}) {
    uses.note(word);
  }
  EXPECT_EQ(uses.last_within(base, 2 * MiB), 0u);
  uses.cover(~CUdeviceptr{0} - 10, 4);
  uses.cover(base, 0);
}

TEST(LastUsesOfMemory, CrossTheSeamBetweenTables) {
  LastUses uses;
  const CUdeviceptr seam = base + (Size{16} << 30);
  uses.cover(seam - 2 * MiB, 4 * MiB);
  uses.note(seam - 1);
  EXPECT_EQ(uses.last_within(seam - 2 * MiB, 2 * MiB), uses.now());
  EXPECT_EQ(uses.last_within(seam, 2 * MiB), 0u);
  uses.note(seam);
  EXPECT_EQ(uses.last_within(seam, 2 * MiB), uses.now());
}

TEST(LastUsesOfMemory, OfAChunkThatBlocksShareTheLatestCounts) {
  LastUses uses;
  uses.cover(base, 64 * MiB);
  uses.note(base + 10 * MiB);
  const Location here = Location::device(0);
  const auto held = [&](CUdeviceptr address, Location where, CUmemGenericAllocationHandle chunk) {
    return HeldChunk{address, 2 * MiB, where, chunk, address, 2 * MiB, chunk};
  };
  const auto chunks = with_last_uses({held(base, here, 7), held(base + 10 * MiB, here, 7),
                                      held(base + 20 * MiB, Location::host(0), 8)},
                                     uses, {}, 0);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].last, uses.now());
  EXPECT_EQ(chunks[0].residency, Residency::Near);
  EXPECT_EQ(chunks[1].last, 0u);
  EXPECT_EQ(chunks[1].residency, Residency::Far);
}

// A kernel gets a block's first address, and uses all of the block.
TEST(LastUsesOfMemory, CoverAllChunksOfABlock) {
  LastUses uses;
  uses.cover(base, 64 * MiB);
  uses.note(base + 2 * MiB);
  const Location here = Location::device(0);
  const auto chunks =
      with_last_uses({{base, 8 * MiB, here, 1, base + 2 * MiB, 40 * MiB, 9},
                      {base + 8 * MiB, 32 * MiB, here, 2, base + 2 * MiB, 40 * MiB, 9},
                      {base + 40 * MiB, 2 * MiB, here, 3, base + 42 * MiB, 512, 9}},
                     uses, {}, 0);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0].last, uses.now());
  EXPECT_EQ(chunks[1].last, uses.now());
  EXPECT_EQ(chunks[2].last, 0u);
}

constexpr LastUses::Moment now = 100;
constexpr PlaceBounds plenty{
    .now = now, .room_near = 0, .room_far = 64 * GiB, .most = 64 * GiB, .least = 2 * MiB};

PlacedChunk near(CUmemGenericAllocationHandle chunk, LastUses::Moment last) {
  return {chunk, 32 * MiB, Residency::Near, last, true};
}
PlacedChunk far(CUmemGenericAllocationHandle chunk, LastUses::Moment last) {
  return {chunk, 32 * MiB, Residency::Far, last, true};
}

TEST(BetterPlacesForMemory, UsedMemoryMovesInForTheLeastRecentlyUsed) {
  const BetterPlaces found = find_better_places(
      {near(1, 90), near(2, 10), near(3, 20), near(4, now), far(5, now)}, plenty);
  EXPECT_TRUE(found.change.contains(5));
  EXPECT_TRUE(found.change.contains(2));
  EXPECT_TRUE(found.change.contains(3)) << "as much again, for what is allocated next";
  EXPECT_FALSE(found.change.contains(1));
  EXPECT_FALSE(found.change.contains(4));
  EXPECT_EQ(found.in, 32 * MiB);
  EXPECT_EQ(found.out, 64 * MiB);
}

TEST(BetterPlacesForMemory, NearMemoryUsedAsRecentlyStays) {
  EXPECT_FALSE(find_better_places({near(1, now), near(2, now - 1), far(3, now)}, plenty).are_any());
}

TEST(BetterPlacesForMemory, ShortLivedMemoryIsLeftAlone) {
  PlacedChunk fresh_near = near(1, 0);
  fresh_near.has_stayed = false;
  PlacedChunk fresh_far = far(2, now);
  fresh_far.has_stayed = false;
  EXPECT_FALSE(find_better_places({fresh_near, far(3, now)}, plenty).are_any());
  EXPECT_FALSE(find_better_places({near(4, 1), fresh_far}, plenty).are_any());
}

// By holder: the next allocation may lie where the previous one did.
TEST(BetterPlacesForMemory, LongLivedMemoryIsRecognizedByItsHolder) {
  const auto held_by = [](std::uint64_t holder) {
    return std::vector<HeldChunk>{{base, 2 * MiB, Location::device(0), 1, base, 2 * MiB, holder}};
  };
  Stays stays;
  for (LastUses::Moment at = 1; at <= 20; ++at) stays.look(held_by(5), at);
  EXPECT_TRUE(stays.has_stayed(5, 20));
  EXPECT_FALSE(stays.has_stayed(6, 20));
  stays.look(held_by(6), 21);
  EXPECT_FALSE(stays.has_stayed(5, 21));
  EXPECT_FALSE(stays.has_stayed(6, 22));
  stays.look(held_by(0), 22);
  EXPECT_FALSE(stays.has_stayed(0, 100)) << "freed";
}

TEST(ColdMemory, IsUnusedForSomeSecondsLeastRecentFirst) {
  const auto held = [](CUmemGenericAllocationHandle chunk, LastUses::Moment last,
                       LastUses::Moment since) {
    return PlacedChunk{chunk, 2 * MiB, Residency::Near, last, true, since};
  };
  const std::vector<PlacedChunk> chunks{held(1, 60, 1), held(2, 20, 1), held(3, 0, 1),
                                        held(4, 95, 1), held(5, 0, 90), far(6, 0)};
  const auto all = find_cold_places(chunks, 100, unlimited);
  EXPECT_EQ(all.out, 6 * MiB);
  EXPECT_EQ(all.change, (std::unordered_set<CUmemGenericAllocationHandle>{1, 2, 3}));
  const auto some = find_cold_places(chunks, 100, 3 * MiB);
  EXPECT_EQ(some.change, (std::unordered_set<CUmemGenericAllocationHandle>{2, 3}));
  EXPECT_EQ(some.going.size(), 2u);
  EXPECT_FALSE(find_cold_places(chunks, 100, 0).are_any());
}

TEST(BetterPlacesForMemory, UnusedMemoryStaysFar) {
  EXPECT_FALSE(find_better_places({near(1, 10), far(2, 50), far(3, 0)}, plenty).are_any());
}

TEST(BetterPlacesForMemory, FreeRoomIsUsedWithoutMovingAnythingOut) {
  PlaceBounds bounds = plenty;
  bounds.room_near = 40 * MiB;
  const BetterPlaces found = find_better_places({near(1, 10), far(2, now), far(3, 5)}, bounds);
  EXPECT_EQ(found.change.size(), 1u);
  EXPECT_EQ(found.in, 32 * MiB);
  EXPECT_EQ(found.out, 0u);
}

TEST(BetterPlacesForMemory, NoMoreIsMovedThanAllowed) {
  std::vector<PlacedChunk> chunks;
  for (CUmemGenericAllocationHandle i = 1; i <= 100; ++i) chunks.push_back(near(i, 10));
  for (CUmemGenericAllocationHandle i = 101; i <= 200; ++i) chunks.push_back(far(i, now));
  PlaceBounds bounds = plenty;
  bounds.most = 320 * MiB;
  BetterPlaces found = find_better_places(chunks, bounds);
  EXPECT_LE(found.in + found.out, 320 * MiB);
  EXPECT_TRUE(found.are_any());
  bounds = plenty;
  bounds.room_far = 100 * MiB;
  found = find_better_places(chunks, bounds);
  EXPECT_LE(found.out, 100 * MiB);
  bounds.least = 1 * GiB;
  EXPECT_FALSE(find_better_places(chunks, bounds).are_any()) << "not worth to stop a program";
}

}  // namespace
}  // namespace cuvmm::test
