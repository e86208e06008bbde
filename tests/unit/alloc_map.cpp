// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <thread>

#include "alloc/allocation_map.hpp"
#include "alloc/record_pool.hpp"
#include "support/scale.hpp"
#include "unit/heap_in_use.hpp"

namespace cuvmm::test {
namespace {

constexpr CUdeviceptr base = 0x7f0000000000;

struct Held {
  RecordPool<PlainAllocation> records;

  PlainAllocation& at(CUdeviceptr address, Size size) {
    PlainAllocation& allocation = records.make();
    allocation.place(address, size);
    allocation.hold({.asked = size,
                     .buffer_id = ++last_id,
                     .owner = {},
                     .served = Served::StreamOrdered,
                     .device = 0});
    return allocation;
  }
  std::uint64_t last_id = 0;
};

bool try_release(PlainAllocation& allocation) {
  const auto facts = allocation.facts();
  return facts && allocation.try_release(*facts);
}

TEST(AllocationMap, FindsAllocationByAnyOfItsBytes) {
  Held held;
  AllocationMap map;
  PlainAllocation& one = held.at(base + 512, 3 * MiB);
  map.add(one);
  EXPECT_EQ(map.find(base + 511), std::nullopt);
  for (const Size offset : {Size{0}, Size{1}, MiB, 3 * MiB - 1}) {
    const auto found = map.find(base + 512 + offset);
    ASSERT_TRUE(found) << offset;
    EXPECT_EQ(found->allocation, &one);
    EXPECT_EQ(found->facts.granted, 3 * MiB);
  }
  EXPECT_EQ(map.find(base + 512 + 3 * MiB), std::nullopt);
  EXPECT_TRUE(map.find_start(base + 512));
  EXPECT_FALSE(map.find_start(base + 1024));
}

TEST(AllocationMap, FindsTheEndOfAnAllocationOfManySpans) {
  Held held;
  AllocationMap map;
  PlainAllocation& large = held.at(base + 4 * MiB, 100 * GiB);
  map.add(large);
  const auto found = map.find(base + 4 * MiB + 100 * GiB - 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->allocation, &large);
  EXPECT_FALSE(map.find(base + 4 * MiB + 100 * GiB));
}

TEST(AllocationMap, AReleasedAllocationIsNotFound) {
  Held held;
  AllocationMap map;
  PlainAllocation& one = held.at(base, 4096);
  map.add(one);
  ASSERT_TRUE(try_release(one));
  EXPECT_FALSE(map.find(base));
  EXPECT_TRUE(one.is_listed()) << "so that it needs not be added when it is held again";
  one.hold({.asked = 1, .buffer_id = 2, .owner = {}, .served = Served::Small, .device = 0});
  EXPECT_TRUE(map.find(base));
}

TEST(AllocationMap, OnlyOneOfSeveralFreesSucceeds) {
  Held held;
  AllocationMap map;
  map.add(held.at(base, 4096));
  const auto seen = map.find_start(base);
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->allocation->try_release(seen->facts));
  EXPECT_FALSE(seen->allocation->try_release(seen->facts));
}

TEST(AllocationMap, OldFactsDoNotReleaseAReusedRecord) {
  Held held;
  AllocationMap map;
  PlainAllocation& one = held.at(base, 4096);
  map.add(one);
  const auto seen = map.find_start(base);
  ASSERT_TRUE(try_release(one));
  one.place(base + 8192, 4096);
  one.hold({.asked = 1, .buffer_id = 2, .owner = {}, .served = Served::Small, .device = 0});
  EXPECT_FALSE(seen->allocation->try_release(seen->facts));
  EXPECT_TRUE(one.is_held());
}

unsigned asked_for = 0;

// As when a program has freed thousands of small blocks, and then asks about memory of the host.
TEST(AllocationMap, PassesFewReleasedOnesForAnAddressThatCanHoldNone) {
  Held held;
  constexpr CUdeviceptr end = base + 64 * MiB;
  AllocationMap map{[](CUdeviceptr address) {
    ++asked_for;
    return address < end;
  }};
  PlainAllocation& lowest = held.at(base, 512);
  map.add(lowest);
  std::vector<PlainAllocation*> many;
  for (Size at = 1; at <= 20'000; ++at) map.add(*many.emplace_back(&held.at(base + at * 512, 512)));
  for (PlainAllocation* const one : many) ASSERT_TRUE(try_release(*one));
  asked_for = 0;
  EXPECT_FALSE(map.find(end + 64 * MiB));
  EXPECT_EQ(asked_for, 1u);
  EXPECT_FALSE(map.find(end - 1)) << "it looks at all of them, and finds one that ends before";
  EXPECT_EQ(asked_for, 2u);
  EXPECT_TRUE(map.find(base + 511));
  EXPECT_EQ(asked_for, 2u) << "it finds that one at once";
}

TEST(AllocationMap, ReleasedSmallOnesUnderALargeOneAreForgotten) {
  Held held;
  AllocationMap map;
  std::vector<PlainAllocation*> small;
  for (Size offset = 0; offset < 8 * MiB; offset += 512) {
    small.push_back(&held.at(base + offset, 512));
    map.add(*small.back());
  }
  for (PlainAllocation* one : small) {
    ASSERT_TRUE(try_release(*one));
    one->unplace();
  }
  PlainAllocation& large = held.at(base, 8 * MiB);
  map.add(large);
  for (Size offset = 0; offset < 8 * MiB; offset += 300 * KiB) {
    const auto found = map.find(base + offset);
    ASSERT_TRUE(found) << offset;
    EXPECT_EQ(found->allocation, &large);
  }
}

// Cached allocations stay listed while the table around them grows.
TEST(AllocationMap, KeepsReleasedAllocationsWhileItsTableGrows) {
  Held held;
  AllocationMap map;
  std::vector<PlainAllocation*> kept;
  for (Size i = 0; i < 64; ++i) {
    PlainAllocation& one = held.at(base + i * 4096, 4096);
    map.add(one);
    ASSERT_TRUE(try_release(one));
    kept.push_back(&one);
    if (i % 2 == 1) {  // freed, and replaced by another at the same address
      one.unplace();
      PlainAllocation& other = held.at(base + i * 4096, 4096);
      map.add(other);
      ASSERT_TRUE(try_release(other));
      kept.back() = &other;
    }
  }
  for (PlainAllocation* one : kept) {
    ASSERT_TRUE(one->is_listed());
    one->hold({.asked = 1, .buffer_id = 2, .owner = {}, .served = Served::Small, .device = 0});
    const auto found = map.find_start(one->address());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->allocation, one);
  }
}

// Blocks that keep moving within a granule need no more memory than blocks that stay.
TEST(AllocationMap, TakesNoMoreForBlocksThatMoveAbout) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "its heap is another one";
#endif
  std::mt19937_64 random{seed()};
  Held held;
  AllocationMap map;
  std::vector<PlainAllocation*> blocks;
  const auto place_anywhere = [&](PlainAllocation& block) {
    const CUdeviceptr address = base + random() % (2 * MiB / 512) * 512;
    block.place(address, 512);
    block.hold({.asked = 512,
                .buffer_id = ++held.last_id,
                .owner = {},
                .served = Served::StreamOrdered,
                .device = 0});
    map.add(block);
    EXPECT_TRUE(map.find_start(address));
  };
  for (int i = 0; i < 12; ++i) {
    blocks.push_back(&held.records.make());
    place_anywhere(*blocks.back());
  }
  const auto before = heap_in_use();
  for (std::uint64_t i = 0; i < scaled(100'000); ++i) place_anywhere(*blocks[random() % 12]);
  EXPECT_LT(heap_in_use(), before + 4096);
}

// Against a std::map, with records reused at other places.
TEST(AllocationMap, RandomOperations) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  Held held;
  AllocationMap map;
  std::map<CUdeviceptr, PlainAllocation*> oracle;
  const auto holder_of = [&](CUdeviceptr at) -> PlainAllocation* {
    auto after = oracle.upper_bound(at);
    if (after == oracle.begin()) return nullptr;
    --after;
    return after->second->end() > at ? after->second : nullptr;
  };
  const Size whole = 64 * MiB;
  for (std::uint64_t i = 0; i < scaled(200'000); ++i) {
    const CUdeviceptr at = base + random() % (whole / 512) * 512;
    if (PlainAllocation* there = holder_of(at)) {
      oracle.erase(there->address());
      ASSERT_TRUE(try_release(*there));
      there->unplace();
      held.records.give_back(*there);
    } else {
      const auto next = oracle.lower_bound(at);
      const Size room = (next == oracle.end() ? base + whole : next->first) - at;
      const Size most = random() % 8 == 0 ? 8 * MiB : 16 * KiB;
      const Size size = std::min<Size>(room, (1 + random() % (most / 512)) * 512);
      PlainAllocation& added = held.at(at, size);
      if (!added.is_listed()) map.add(added);
      oracle[at] = &added;
    }
    const CUdeviceptr asked = base + random() % whole;
    const auto found = map.find(asked);
    ASSERT_EQ(found ? found->allocation : nullptr, holder_of(asked)) << asked - base;
  }
}

TEST(AllocationMap, ReadersSeeConsistentAllocationsDuringChanges) {
  AllocationMap map;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> seen{0};
  std::vector<std::jthread> threads;
  std::deque<Held> held(4);
  for (unsigned writer = 0; writer < held.size(); ++writer) {
    threads.emplace_back([&, writer] {
      const CUdeviceptr mine = base + writer * 256 * KiB;  // all within one granule
      std::mt19937_64 random{writer};
      for (std::uint64_t i = 0; i < scaled(20'000); ++i) {
        PlainAllocation& one = held[writer].at(mine + random() % 64 * 4096, 4096);
        map.add(one);
        const auto facts = one.facts();
        if (!facts || !one.try_release(*facts)) std::abort();
        one.unplace();
        held[writer].records.give_back(one);
      }
      stop = true;
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random{99};
    while (!stop) {
      const CUdeviceptr asked = base + random() % MiB;
      const auto found = map.find(asked);
      if (!found) continue;
      ++seen;
      if (!found->facts.contains(asked) || found->facts.granted != 4096) std::abort();
    }
  });
  threads.clear();
}

}  // namespace
}  // namespace cuvmm::test
