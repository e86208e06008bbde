// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "alloc/windows/window_block.hpp"
#include "base/invariant.hpp"
#include "stream/stream_order.hpp"

namespace cuvmm {

// Freed blocks whose windows are still mapped, by size: ready ones, for the next block of that
// size, and pending ones, until the work of their time is done. Not synchronised.
class CachedWindows {
 public:
  // Before the block is touched in any other way.
  void add_ready(WindowBlock& block);
  void add_pending(WindowBlock& block);
  void remove(WindowBlock& block);  // either

  // The last freed ready one of that size; nullptr where there is none. It stays.
  WindowBlock* find_ready(Size granted) const;
  // A pending one of that size whose work is done; looks at few. It stays.
  WindowBlock* find_done(Size granted, const StreamOrder& order) const;

  WindowBlock* oldest_pending() const { return pending_.first(); }
  static WindowBlock* pending_after(const WindowBlock& block) { return Ages::after(block); }
  // Ready for longest; large ones have chunks of their own.
  WindowBlock* oldest_small() const { return small_.first(); }
  WindowBlock* oldest_large() const { return large_.first(); }

  std::size_t ready() const { return ready_count_; }
  std::size_t pending() const { return pending_count_; }
  Size bytes() const { return bytes_; }

  InvariantViolation violation() const;

 private:
  static constexpr int few = 8;
  // Sizes that nobody has freed lately cost a little memory; so many of them do not matter.
  static constexpr std::size_t sizes_kept = 4096;

  using Sizes = LinkedList<WindowBlock, &WindowBlock::of_size>;
  using Ages = LinkedList<WindowBlock, &WindowBlock::of_age>;
  struct OfSize {
    Sizes ready;  // the last freed first
    Sizes pending;
    bool is_empty() const { return ready.is_empty() && pending.is_empty(); }
  };

  Ages& ages_of(const WindowBlock& block);
  OfSize& of_size(Size granted);

  std::unordered_map<Size, OfSize> sizes_;
  Ages small_;
  Ages large_;
  Ages pending_;
  std::size_t ready_count_ = 0;
  std::size_t pending_count_ = 0;
  Size bytes_ = 0;
};

}  // namespace cuvmm
