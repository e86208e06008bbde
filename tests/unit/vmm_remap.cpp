// SPDX-License-Identifier: Apache-2.0
// Remap over a ledger as small as can be, with each of its driver calls failing in turn.
#include "vmm/remap.hpp"

#include <map>
#include <optional>
#include <utility>

#include "support/fault_sweep.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

// Addresses in whole granules, and what the ledger was told of each.
class RemapWorld final : public VmmWorld, public BackingLedger {
 public:
  explicit RemapWorld(const Driver& with) : VmmWorld(with) { remap.emplace(with); }
  ~RemapWorld() {
    for (const auto& [place, backing] : mapped_) {
      EXPECT_CUDA(driver.cuMemUnmap(address(place), backing.chunk->size()));
    }
  }

  // The backing of a granule becomes this; by default, nothing.
  void change(Size place, ChunkRef after = {}, AccessSet access = read_write()) {
    places_.push_back(place);
    remap->add(address(place), backing(place), {std::move(after), access});
  }
  // Maps a chunk with its own contents.
  void given(Size place, ChunkRef chunk, AccessSet access = read_write()) {
    Remap first{driver};
    const std::vector<Size> places = std::exchange(places_, {place});
    first.add(address(place), {}, {std::move(chunk), access});
    ASSERT_OK(first.commit(*this));
    places_ = places;
    if (access == read_write()) write_word(address(place), word_of(place));
  }
  // No other world writes it: a new chunk has what its memory held before.
  std::uint32_t word_of(Size place) const {
    return first_word_ + static_cast<std::uint32_t>(place);
  }
  Backing backing(Size place) const {
    const auto found = mapped_.find(place);
    return found == mapped_.end() ? Backing{} : found->second;
  }

  // What the ledger says, which the driver must confirm, and the contents.
  std::string describe() const {
    std::string text;
    for (const auto& [place, backing] : mapped_) {
      CUmemGenericAllocationHandle handle = 0;
      void* const pointer = reinterpret_cast<void*>(address(place));  // NOLINT
      EXPECT_CUDA(driver.cuMemRetainAllocationHandle(&handle, pointer));
      EXPECT_EQ(handle, backing.chunk->handle());
      EXPECT_CUDA(driver.cuMemRelease(handle));
      text += std::to_string(place) + ": chunk " + std::to_string(handle) + " " +
              backing.access.print();
      EXPECT_EQ(rights(address(place)) != 0, !backing.access.is_none());
      if (!backing.access.is_none()) text += " holds " + std::to_string(read_word(address(place)));
      text += "\n";
    }
    return text;
  }

  std::optional<Remap> remap;

 private:
  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override {
    mapped_[places_[at.slot]] = {chunk, access};
  }
  void remove_backing(At at, const ChunkRef& chunk) override {
    EXPECT_EQ(mapped_[places_[at.slot]].chunk, chunk);
    mapped_.erase(places_[at.slot]);
  }

  static inline std::uint32_t worlds_ = 0;
  const std::uint32_t first_word_ = 100 * ++worlds_;
  std::vector<Size> places_;  // by slot
  std::map<Size, Backing> mapped_;
};

class RemapTest : public VmmTest {
 protected:
  static void sweep(const std::function<void(RemapWorld&)>& prepare,
                    const std::function<void(RemapWorld&)>& then) {
    sweep_faults(
        Scenario<RemapWorld>{.given =
                                 [prepare](const Driver& with) {
                                   auto world = std::make_unique<RemapWorld>(with);
                                   prepare(*world);
                                   return world;
                                 },
                             .when = [](RemapWorld& world) { return world.remap->commit(world); },
                             .then = then,
                             .snapshot = [](RemapWorld& world) { return world.describe(); },
                             .check = [](RemapWorld& world) { (void)world.describe(); }});
  }
};

TEST_F(RemapTest, ChunksAreExchanged) {
  sweep(
      [](RemapWorld& world) {
        for (const Size place : {0u, 1u, 3u}) {
          world.given(place, world.chunk());
          world.change(place, world.chunk());
        }
      },
      [](RemapWorld& world) {
        for (const Size place : {0u, 1u, 3u})
          EXPECT_NE(read_word(world.address(place)), world.word_of(place));
      });
}

TEST_F(RemapTest, OneChunkComesBehindSeveralAddresses) {
  sweep(
      [](RemapWorld& world) {
        world.given(4, world.chunk());
        for (const Size place : {0u, 1u, 2u}) {
          world.given(place, world.chunk());
          world.change(place, world.backing(4).chunk);
        }
      },
      [](RemapWorld& world) {
        for (const Size place : {0u, 1u, 2u})
          EXPECT_EQ(read_word(world.address(place)), world.word_of(4));
      });
}

TEST_F(RemapTest, MemoryLeavesAndComes) {
  sweep(
      [](RemapWorld& world) {
        world.given(0, world.chunk());
        world.given(1, world.chunk());
        world.change(0);
        world.change(1);
        world.change(2, world.chunk(2));
      },
      [](RemapWorld& world) {
        EXPECT_FALSE(world.backing(0).chunk || world.backing(1).chunk);
        EXPECT_EQ(world.backing(2).chunk->size(), 2 * world.granule);
      });
}

TEST_F(RemapTest, OneLargeChunkTakesThePlaceOfSmallOnes) {
  sweep(
      [](RemapWorld& world) {
        world.given(0, world.chunk());
        world.given(1, world.chunk());
        world.change(0, world.chunk(2));
        world.change(1);
      },
      [](RemapWorld& world) { EXPECT_FALSE(world.backing(1).chunk); });
}

TEST_F(RemapTest, AccessChangesWithAndWithoutTheChunk) {
  sweep(
      [](RemapWorld& world) {
        const AccessSet read_only = AccessSet::of(0, Access::Read);
        world.given(0, world.chunk());
        world.given(1, world.chunk(), read_only);
        world.given(2, world.chunk());
        world.change(0, world.backing(0).chunk, read_only);
        world.change(1, world.chunk(), read_only);
        world.change(2, world.backing(2).chunk, AccessSet::none());
      },
      [](RemapWorld& world) {
        EXPECT_EQ(world.backing(0).access, AccessSet::of(0, Access::Read));
        EXPECT_EQ(read_word(world.address(0)), world.word_of(0));
        EXPECT_TRUE(world.backing(2).access.is_none());
      });
}

TEST_F(RemapTest, SetsAccessOncePerRun) {
  FaultyDriver faulty{driver()};
  RemapWorld world{faulty};
  world.given(1, world.chunk());
  world.change(0, world.chunk(2));
  world.change(1);
  for (const Size place : {2u, 4u, 5u}) world.change(place, world.chunk());
  world.remap->separate();
  world.change(6, world.chunk());
  faulty.forget_calls();
  ASSERT_OK(world.remap->commit(world));
  EXPECT_EQ(faulty.count_of("cuMemSetAccess"), 3u) << "from 0, 4 and 6 on";
}

TEST_F(RemapTest, AFailedOneMayBeCommittedAgain) {
  FaultyDriver faulty{driver()};
  RemapWorld world{faulty};
  world.given(0, world.chunk());
  const ChunkRef other = world.chunk();
  world.change(0, other);
  faulty.fail_from(2, CUDA_ERROR_UNKNOWN);  // the unmap works; the undo fails too
  EXPECT_FALSE(world.remap->commit(world).ok());
  faulty.stop_failing();
  EXPECT_FALSE(world.backing(0).chunk);
  EXPECT_OK(world.remap->commit(world));
  EXPECT_EQ(world.backing(0).chunk, other);
  (void)world.describe();
}

TEST_F(RemapTest, KeepsTheOldChunksUntilItEnds) {
  RemapWorld world{driver()};
  world.given(0, world.chunk());
  world.change(0, world.chunk());
  const Size in_use = world.store.counters(world.here).physical_in_use;
  ASSERT_OK(world.remap->commit(world));
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, in_use);
  world.remap.reset();
  EXPECT_EQ(world.store.counters(world.here).physical_in_use, in_use - world.granule);
}

}  // namespace
}  // namespace cuvmm::test
