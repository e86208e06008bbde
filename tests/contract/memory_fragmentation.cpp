// SPDX-License-Identifier: Apache-2.0
// What plain allocation can make of scattered free memory. Measured: blocks of 1 MiB and less share
// granules, and a granule with one live block in it is lost to larger blocks; blocks of 1.5 MiB and
// more have granules of their own, which the driver maps together at will.
#include <optional>
#include <vector>

#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

// The memory in which the comb is made; ballast takes the rest of the card.
constexpr Size field = 1 * GiB;

std::optional<GivenBlocking> try_blocking(Size size) {
  CUdeviceptr address = 0;
  const CUresult answer = driver().cuMemAlloc(&address, size);
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) return std::nullopt;
  given(answer, "cuMemAlloc");
  GivenBlocking block = GivenBlocking::adopt(address, size);
  return block;
}

std::vector<GivenBlocking> fill_all_memory_with(Size block_size) {
  std::vector<GivenBlocking> blocks;
  while (auto block = try_blocking(block_size)) blocks.push_back(std::move(*block));
  return blocks;
}

// Frees every second block, as a program would. Returns the bytes freed.
Size free_every_second(std::vector<GivenBlocking>& blocks) {
  std::vector<GivenBlocking> kept;
  Size freed = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      kept.push_back(std::move(blocks[i]));
    } else {
      freed += blocks[i].size();
      EXPECT_CUDA(blocks[i].free());
    }
  }
  blocks.swap(kept);
  return freed;
}

class Fragmentation : public DriverContract {
 protected:
  GivenBallast ballast_after_context() { return GivenBallast{field}; }
};

class CombOfSmallBlocks : public Fragmentation, public ::testing::WithParamInterface<Size> {};

TEST_P(CombOfSmallBlocks, GivesBackNothingToLargerBlocks) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  auto ballast = ballast_after_context();
  auto blocks = fill_all_memory_with(GetParam());
  const Size freed = free_every_second(blocks);
  EXPECT_GT(freed, field / 3);
  // Or one: a driver sometimes releases memory of its own.
  EXPECT_LE(fill_all_memory_with(2 * MiB).size(), 1);
}

TEST_P(CombOfSmallBlocks, GivesBackAllToBlocksOfItsOwnSize) {
  auto ballast = ballast_after_context();
  auto blocks = fill_all_memory_with(GetParam());
  const std::size_t count = blocks.size();
  free_every_second(blocks);
  const std::size_t kept = blocks.size();
  const auto again = fill_all_memory_with(GetParam());
  // Or more: a driver sometimes releases memory of its own.
  EXPECT_GE(kept + again.size(), count);
}

INSTANTIATE_TEST_SUITE_P(BlockSize, CombOfSmallBlocks,
                         ::testing::Values(1 * MiB, 512 * KiB, 64 * KiB),
                         [](const auto& size) { return std::to_string(size.param / KiB) + "KiB"; });

class CombOfLargeBlocks : public Fragmentation, public ::testing::WithParamInterface<Size> {};

TEST_P(CombOfLargeBlocks, GivesBackAllAsOneBlock) {
  auto ballast = ballast_after_context();
  auto blocks = fill_all_memory_with(GetParam());
  const Size freed = free_every_second(blocks);
  EXPECT_GT(freed, field / 3);
  auto whole = try_blocking(freed);
  ASSERT_TRUE(whole.has_value());
  write_word(whole->address() + freed - 4, 5);
  EXPECT_EQ(read_word(whole->address() + freed - 4), 5u);
}

INSTANTIATE_TEST_SUITE_P(BlockSize, CombOfLargeBlocks,
                         ::testing::Values(1536 * KiB, 2 * MiB, 6 * MiB),
                         [](const auto& size) { return std::to_string(size.param / KiB) + "KiB"; });

}  // namespace
}  // namespace cuvmm::test
