// SPDX-License-Identifier: Apache-2.0
// The parts of windows, each alone.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "alloc/windows/colouring.hpp"
#include "alloc/windows/slot_order.hpp"
#include "alloc/windows/window_addresses.hpp"
#include "alloc/windows/window_shape.hpp"
#include "support/scale.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

constexpr Size granule = 2 * MiB;

TEST(WindowShape, AddressesTellWhichBytesOfAGranuleAPieceTakes) {
  for (const Size size : {64 * KiB, 1 * MiB + 512, 3 * MiB, 15 * MiB + 512, 17 * MiB, 18 * MiB}) {
    const cuvmm::Shape shape{size, granule};
    for (Size i = 0; shape.has_piece() && i < shape.format().slot_count(granule); ++i) {
      const Stretch slot = shape.format().slot(i, granule);
      const CUdeviceptr window = 10 * granule;
      const PlacedBlock placed{window + shape.begins_at(slot), size, granule};
      EXPECT_EQ(placed.piece(), slot) << size << " slot " << i;
      EXPECT_EQ(placed.window(), window);
      EXPECT_EQ(placed.window_bytes(), shape.window_bytes());
      EXPECT_EQ(placed.whole_bytes(), shape.whole_bytes());
      // Together the whole granules and the piece's granule are the window.
      if (shape.whole_bytes() != 0) {
        EXPECT_EQ(std::min(placed.whole(), placed.piece_window()), window);
        EXPECT_NE(placed.whole(), placed.piece_window());
      }
    }
  }
}

TEST(SlotOrder, HandsOutEverySlotOnce) {
  for (Size count = 1; count <= 40; ++count) {
    for (std::uint64_t chunk = 0; chunk < 30; ++chunk) {
      auto slots = SlotOrder{7, chunk, count}.slots(count);
      std::sort(slots.begin(), slots.end());
      for (Size i = 0; i < count; ++i) ASSERT_EQ(slots[i], i);
    }
  }
}

// How many excess chunks a comb needs that keeps all but every `period`-th block, as a share of the
// freed chunks.
double lost_to_a_comb(Size count, Size period) {
  constexpr Size chunks = 1536;
  std::vector<Size> live(count);
  for (Size chunk = 0, block = 0; chunk < chunks; ++chunk) {
    for (const Size slot : SlotOrder{seed(), chunk, count}.slots(count)) {
      if (block++ % period != 0) ++live[slot];
    }
  }
  const double ideal =
      static_cast<double>(chunks) * static_cast<double>(period - 1) / static_cast<double>(period);
  const auto most = static_cast<double>(*std::max_element(live.begin(), live.end()));
  return (most - ideal) / (static_cast<double>(chunks) - ideal);
}

TEST(SlotOrder, RegularCombsThinAllSlotsEvenly) {
  PRINT_SEED_ON_FAILURE();
  for (Size count = 1; count <= 32; ++count) {
    EXPECT_LT(lost_to_a_comb(count, 2), 0.05) << count << " slots, every second";
    EXPECT_LT(lost_to_a_comb(count, 3), 0.08) << count << " slots, every third";
  }
}

struct PieceOfChunk {
  std::size_t chunk;
  Stretch where;
};

// Adjacent pieces of random sizes, of which about half are kept.
std::vector<PieceOfChunk> random_pieces(std::mt19937_64& random, std::size_t chunks, Size smallest,
                                        Size largest) {
  std::vector<PieceOfChunk> pieces;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    Size at = 0;
    for (;;) {
      const Size size = round_up(smallest + random() % (largest - smallest + 1), window_step);
      if (at + size > granule) break;
      if (random() % 2 == 0) pieces.push_back({chunk, {at, size}});
      at += size;
    }
  }
  return pieces;
}

// Overlapping pieces need a chunk each, so this is the fewest chunks that can hold them.
std::size_t most_over_one_offset(const std::vector<PieceOfChunk>& pieces) {
  std::map<Size, int> changes;
  for (const PieceOfChunk& piece : pieces) {
    ++changes[piece.where.offset];
    --changes[piece.where.end()];
  }
  int over = 0;
  int most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, over += change);
  return static_cast<std::size_t>(most);
}

struct Coloured {
  std::size_t chunks_left;
  std::size_t fewest;
  std::set<std::size_t> emptied;
};

Coloured empty_all(const std::vector<PieceOfChunk>& pieces, std::size_t chunks,
                   std::size_t that_stay = 0) {
  Colouring colouring{granule};
  for (std::size_t i = 0; i < chunks; ++i) {
    colouring.add_chunk(i < that_stay ? Colouring::Role::Stays : Colouring::Role::MayGo);
  }
  std::vector<Colouring::Index> index;
  index.reserve(pieces.size());
  for (const PieceOfChunk& piece : pieces) {
    index.push_back(colouring.add_piece(static_cast<Colouring::Index>(piece.chunk), piece.where));
  }
  const std::size_t emptied = colouring.empty(chunks);
  EXPECT_EQ(emptied, colouring.emptied().size());
  const std::set<std::size_t> gone(colouring.emptied().begin(), colouring.emptied().end());
  EXPECT_EQ(gone.size(), emptied) << "no chunk is emptied twice";

  std::map<std::size_t, std::map<Size, Size>> taken;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::size_t at = colouring.chunk_of(index[i]);
    EXPECT_EQ(gone.count(at), 0u) << "a piece lies in an emptied chunk";
    if (gone.count(pieces[i].chunk) == 0) {
      EXPECT_EQ(at, pieces[i].chunk) << "it was moved for nothing";
    }
    EXPECT_TRUE(taken[at].emplace(pieces[i].where.offset, pieces[i].where.end()).second);
  }
  for (const auto& [chunk, stretches] : taken) {
    Size reached = 0;
    for (const auto& [begin, end] : stretches) {
      EXPECT_GE(begin, reached) << "two pieces over each other";
      reached = end;
    }
  }
  return {chunks - emptied, most_over_one_offset(pieces), gone};
}

TEST(Colouring, PiecesOfOneFormatNeedNoMoreChunksThanLieOverOneOffset) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  for (const Size size : {64 * KiB, 100 * KiB, 512 * KiB, 1 * MiB, 2 * MiB - 512}) {
    for (const std::size_t chunks : {1u, 2u, 7u, 100u, 700u}) {
      const auto pieces = random_pieces(random, chunks, size, size);
      const Coloured coloured = empty_all(pieces, chunks);
      EXPECT_EQ(coloured.chunks_left, coloured.fewest) << size << " bytes in " << chunks;
    }
  }
}

TEST(Colouring, PiecesOfAllSizesNeedFewMore) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  const auto pieces = random_pieces(random, 1500, 64 * KiB, 1 * MiB);
  const Coloured coloured = empty_all(pieces, 1500);
  EXPECT_LT(static_cast<double>(coloured.chunks_left), 1.10 * static_cast<double>(coloured.fewest));
}

TEST(Colouring, RemainingChunksReceivePiecesAndAreNotEmptied) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  const auto pieces = random_pieces(random, 60, 256 * KiB, 256 * KiB);
  const Coloured coloured = empty_all(pieces, 60, 10);
  EXPECT_GT(coloured.emptied.size(), 0u);
  EXPECT_GE(*coloured.emptied.begin(), 10u);
}

TEST(Colouring, EmptiesTheCheapestFirst) {
  Colouring colouring{granule};
  for (int i = 0; i < 4; ++i) colouring.add_chunk(Colouring::Role::MayGo);
  colouring.add_piece(0, {0, MiB});
  colouring.add_piece(1, {0, 512 * KiB});
  colouring.add_piece(2, {0, 64 * KiB});
  colouring.add_piece(2, {MiB, 64 * KiB});
  const auto moved = colouring.add_piece(3, {MiB + 64 * KiB, 64 * KiB});
  EXPECT_EQ(colouring.empty(1), 1u);
  EXPECT_EQ(colouring.emptied().front(), 3u);
  EXPECT_NE(colouring.chunk_of(moved), 3u);
}

TEST(Colouring, AFullChunkIsEmptiedIntoSeveralOthers) {
  constexpr Size quarter = granule / 4;
  Colouring colouring{granule};
  const Colouring::Index full = colouring.add_chunk(Colouring::Role::MayGo);
  std::vector<Colouring::Index> leaving;
  for (Size at = 0; at < 4; ++at) {
    leaving.push_back(colouring.add_piece(full, {at * quarter, quarter}));
  }
  for (Size vacant = 0; vacant < 4; ++vacant) {
    const Colouring::Index other = colouring.add_chunk(Colouring::Role::Stays);
    for (Size at = 0; at < 4; ++at) {
      if (at != vacant) colouring.add_piece(other, {at * quarter, quarter});
    }
  }
  EXPECT_EQ(colouring.empty(5), 1u);
  EXPECT_EQ(colouring.emptied(), std::vector{full});
  for (Colouring::Index at = 0; at < 4; ++at) EXPECT_EQ(colouring.chunk_of(leaving[at]), at + 1);
}

TEST(Colouring, MorePiecesThanOneGroupStillPack) {
  if (run_scale() < 1) GTEST_SKIP() << "takes a while under a sanitizer";
  std::mt19937_64 random{seed()};
  constexpr std::size_t chunks = 12'000;  // with that many shapes there is more than one group
  const auto pieces = random_pieces(random, chunks, 64 * KiB, 512 * KiB);
  const Coloured coloured = empty_all(pieces, chunks);
  EXPECT_LT(static_cast<double>(coloured.chunks_left), 1.15 * static_cast<double>(coloured.fewest));
}

class WindowAddressesTest : public VmmTest {};

TEST_F(WindowAddressesTest, AreReservedInStepsUpToABound) {
  WindowAddresses addresses{driver(), {granule, 64 * MiB, 100 * MiB}};
  EXPECT_EQ(addresses.reserved_bytes(), 0u);
  const auto first = addresses.take(granule);
  ASSERT_OK(first);
  EXPECT_EQ(addresses.reserved_bytes(), 64 * MiB);
  EXPECT_TRUE(is_multiple(*first, granule));
  ASSERT_OK(addresses.take(64 * MiB - granule));
  ASSERT_OK(addresses.take(36 * MiB));
  EXPECT_EQ(addresses.reserved_bytes(), 100 * MiB);
  EXPECT_EQ(outcome(addresses.take(granule)), "out of addresses");
}

TEST_F(WindowAddressesTest, AreReservedInSmallerStepsIfTheDriverRefuses) {
  WindowAddresses addresses{driver(), {granule, 1024 * TiB, 4096 * TiB}};
  ASSERT_OK(addresses.take(granule));
  EXPECT_LT(addresses.reserved_bytes(), 1024 * TiB);
  EXPECT_EQ(outcome(addresses.take(1025 * TiB)), "out of addresses");
}

TEST_F(WindowAddressesTest, MergeWhenReturned) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 random{seed()};
  WindowAddresses addresses{driver(), {granule, 256 * MiB, 256 * MiB}};
  std::map<CUdeviceptr, Size> taken;
  for (std::uint64_t i = 0; i < scaled(4000); ++i) {
    if (random() % 2 == 0) {
      const Size bytes = (1 + random() % 8) * granule;
      const auto address = addresses.take(bytes);
      if (!address.ok()) continue;
      const auto next = taken.lower_bound(*address);
      if (next != taken.end()) {
        ASSERT_LE(*address + bytes, next->first);
      }
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *address);
      }
      taken.emplace(*address, bytes);
    } else if (!taken.empty()) {
      const auto going = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      addresses.give(going->first, going->second);
      taken.erase(going);
    }
    ASSERT_EQ(addresses.violation().value_or("nothing"), "nothing");
  }
  for (const auto& [address, bytes] : taken) addresses.give(address, bytes);
  EXPECT_OK(addresses.take(256 * MiB));
}

}  // namespace
}  // namespace cuvmm::test
