// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "alloc/windows/window_block.hpp"
#include "base/invariant.hpp"
#include "stream/stream_order.hpp"

namespace cuvmm {

// Freed blocks whose windows are still mapped, by size: ready ones, for the next block of that
// size, and pending ones, which earlier work may still use. Not synchronised.
class CachedWindows {
 public:
  // A block must be removed before it is changed in any way.
  void add_ready(WindowBlock& block);
  void add_pending(WindowBlock& block);
  void remove(WindowBlock& block);  // ready or pending

  // The most recently freed ready block of that size, or nullptr. Does not remove it.
  WindowBlock* find_ready(Size granted) const;
  // A pending block of that size whose work is done, or nullptr. Examines only a few. Does not
  // remove it.
  WindowBlock* find_done(Size granted, const StreamOrder& order) const;

  WindowBlock* oldest_pending() const { return pending_.first(); }
  static WindowBlock* pending_after(const WindowBlock& block) { return Ages::after(block); }
  // The blocks that have been ready for longest. Large ones have chunks of their own.
  WindowBlock* oldest_small() const { return small_.first(); }
  WindowBlock* oldest_large() const { return large_.first(); }

  std::size_t ready() const { return ready_count_; }
  std::size_t pending() const { return pending_count_; }
  Size bytes() const { return bytes_; }

  InvariantViolation violation() const;

 private:
  static constexpr int few = 8;
  // Sizes without cached blocks cost a little memory each; up to this many do not matter.
  static constexpr std::size_t sizes_kept = 4096;

  using Sizes = LinkedList<WindowBlock, &WindowBlock::of_size>;
  using Ages = LinkedList<WindowBlock, &WindowBlock::of_age>;
  struct OfSize {
    Sizes ready;  // most recently freed first
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
