// SPDX-License-Identifier: Apache-2.0
// Small blocks in granules that share a chunk. The plan of such moves counts in parts of a granule
// of several small blocks each, so two granules of a chunk may each have something live in the same
// part.
#include <vector>

#include "alloc/arena/live_parts.hpp"
#include "spill/served_memory.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

class MemorySharing : public DriverContract {
 protected:
  static constexpr Size granule = 2 * MiB;
  static constexpr Size granules = 8;
  static constexpr Size small = granule / arena::LiveParts::parts / 2;
  static constexpr Size middle = granule / small / 2;  // of the slots for small blocks

  struct Block {
    CUdeviceptr address;
    Size size;
    std::uint32_t word;
  };

  void SetUp() override {
    DriverContract::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) GTEST_SKIP();
    MemorySettings chosen;
    chosen.limit = SizeLimit::of_bytes(granules * granule);
    program_.emplace(driver(), chosen);
  }
  void TearDown() override {
    if (program_) {
      EXPECT_EQ(program_->memory->violation().value_or("nothing"), "nothing");
    }
    program_.reset();
    DriverContract::TearDown();
  }

  // Allocates blocks of that size until no more fit.
  void fill_with(Size size) {
    CUdeviceptr address = 0;
    while (program_->memory->allocate_ordered(&address, size, StreamName{}) ==
           Answer{CUDA_SUCCESS}) {
      const Block block{address, size, ++words_};
      GIVEN(driver().cuMemsetD32(address, block.word, size / sizeof block.word));
      program_->submission_epoch.leave();
      blocks_.push_back(block);
      if (size == small && base_ == 0) base_ = address / granule * granule;
    }
  }
  // `wanted(granule, slot)`, of the small blocks.
  template <class Wanted>
  void keep(Wanted wanted) {
    std::erase_if(blocks_, [&](const Block& block) {
      const Size offset = block.address - base_;
      if (block.size != small || wanted(offset / granule, offset % granule / small)) return false;
      const Answer freed = program_->memory->free_ordered(block.address, StreamName{});
      EXPECT_EQ(freed, Answer{CUDA_SUCCESS});
      return true;
    });
    GIVEN(driver().cuStreamSynchronize(CU_STREAM_LEGACY));
  }
  void expect_intact() {
    for (const Block& block : blocks_) {
      std::vector<std::uint32_t> words(block.size / sizeof(std::uint32_t));
      GIVEN(driver().cuMemcpyDtoH(words.data(), block.address, block.size));
      EXPECT_EQ(words, std::vector(words.size(), block.word));
    }
  }

  std::optional<ServedMemory> program_;
  std::vector<Block> blocks_;
  std::uint32_t words_ = 0;
  CUdeviceptr base_ = 0;
};

TEST_F(MemorySharing, GranulesOfAChunkMayHaveSomethingInTheSamePart) {
  fill_with(small);
  keep([](Size at, Size slot) { return slot % 2 == 0 && (slot < middle) == (at % 2 == 0); });
  fill_with(granule);  // pairs of granules share a chunk now
  fill_with(small);
  keep([](Size at, Size slot) { return at < granules / 2 || (at % 2 == 0 && slot < middle); });
  fill_with(granule);
  expect_intact();
}

}  // namespace
}  // namespace cuvmm::test
