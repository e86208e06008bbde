// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "driver/cuda.hpp"

namespace cuvmm {

// The blocks most recently given to the program, each with the submission epoch at that time. While
// no work has been submitted since, nothing can have touched the block. Not synchronised.
class FreshBlocks {
 public:
  // `note`: the epoch of the last work that was submitted before.
  void add(CUdeviceptr address, std::uint64_t buffer_id, std::uint64_t note) {
    blocks_[next_] = {address, buffer_id, note};
    next_ = (next_ + 1) % blocks_.size();
  }

  // Call if the block gets contents in a way that does not advance the epoch.
  void forget(std::uint64_t buffer_id) {
    for (Block& block : blocks_) {
      if (block.buffer_id == buffer_id) block = {};
    }
  }

  std::optional<std::uint64_t> note_of(CUdeviceptr address, std::uint64_t buffer_id) const {
    for (const Block& block : blocks_) {
      if (block.address == address && block.buffer_id == buffer_id) return block.note;
    }
    return std::nullopt;
  }

 private:
  struct Block {
    CUdeviceptr address = 0;
    std::uint64_t buffer_id = 0;
    std::uint64_t note = 0;
  };
  std::array<Block, 16> blocks_;
  std::size_t next_ = 0;
};

}  // namespace cuvmm
