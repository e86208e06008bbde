// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "alloc/arena/tile.hpp"
#include "base/invariant.hpp"
#include "base/lock.hpp"

namespace cuvmm::arena {

// Blocks that were freed on a stream and wait for its next allocation of exactly their size. To the
// arena they are still blocks. Streams whose numbers map to the same cache share it.
//
// Everything except the locking and bytes() is called with the lock held.
class alignas(64) StreamCache {
 public:
  // The most that a cache keeps.
  struct Bounds {
    std::size_t blocks = 1024;
    Size bytes = unlimited;
  };

  [[nodiscard]] Holding lock() const { return Holding{lock_}; }
  [[nodiscard]] Holding try_lock() const { return Holding{lock_, std::try_to_lock}; }

  // The most recently freed block of that size and stream, or nullptr.
  Block* take(Size size, StreamId stream);
  // Returns false if the cache is full. The block must have been freed on its own stream.
  bool put(Block& block, std::uint64_t tick, const Bounds& bounds);

  bool is_empty() const { return count_ == 0; }
  // If all blocks belong to one stream: a ticket that is no later than any of their frees.
  std::optional<FreeTicket> oldest() const {
    return is_of_one_stream_ ? std::optional{oldest_} : std::nullopt;
  }
  // Removes all blocks and calls `absorb(Block&, FreeTicket)` with each.
  template <class Absorb>
  void empty_into(Absorb absorb) {
    for (const std::uint32_t used : used_) {
      Bin& bin = bins_[used];
      while (bin.top != nullptr) {
        Block& block = *bin.top;
        bin.top = block.below;
        block.is_cached = false;
        absorb(block, FreeTicket{block.stream, block.tick});
      }
      bin = {};
    }
    used_.clear();
    count_ = 0;
    bytes_.store(0, std::memory_order_relaxed);
  }

  Size bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::size_t count() const { return count_; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const std::uint32_t used : used_) {
      for (const Block* block = bins_[used].top; block != nullptr; block = block->below) {
        visit(*block);
      }
    }
  }
  InvariantViolation violation() const;

 private:
  struct Bin {
    Size size = 0;  // 0: unused
    StreamId stream = no_stream;
    Block* top = nullptr;
  };
  static constexpr std::size_t bin_count = 1024;  // a power of two
  static constexpr std::size_t most_bins = bin_count / 2;

  static std::size_t place_of(Size size, StreamId stream);
  // The bin for that size and stream, or the unused one where it belongs.
  Bin& find(Size size, StreamId stream);

  mutable Lock lock_{LockOrder::StreamCache};  // guards what follows
  std::vector<Bin> bins_;                      // open addressing; empty before the first block
  std::vector<std::uint32_t> used_;            // the bins in use
  std::size_t count_ = 0;
  FreeTicket oldest_;  // of the block that was put while the cache was empty
  bool is_of_one_stream_ = false;
  std::atomic<Size> bytes_{0};  // readable without the lock
};

}  // namespace cuvmm::arena
