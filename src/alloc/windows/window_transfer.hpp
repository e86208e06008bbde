// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "alloc/windows/window_compactor.hpp"
#include "alloc/windows/window_table.hpp"

namespace cuvmm {

// Resizing: maps the chunks of one block behind the addresses of another, so that the bytes are
// there without being copied. Takes the table's lock itself.
class WindowTransfer {
 public:
  // `windows`: the reclaim client that the store skips when the transfer takes chunks from it.
  WindowTransfer(WindowTable& table, WindowCompactor& compactor, ChunkStore& store,
                 const WindowSettings& settings, ReclaimClient& windows)
      : table_(table),
        compactor_(compactor),
        store_(store),
        settings_(settings),
        windows_(windows) {}

  // The chunks that could be mapped behind `to` instead of copying the first `bytes` bytes of
  // `from`: those that lie wholly within these bytes.
  struct Movable {
    Size bytes = 0;
    std::size_t chunks = 0;
    std::size_t replaced = 0;  // chunks of `to` that are unmapped
    Size filler = 0;  // bytes that need new memory, because the last of those reaches further
    friend bool operator==(const Movable&, const Movable&) = default;
  };
  Movable movable(const WindowBlock& from, const WindowBlock& to, Size bytes) const;
  // Maps those chunks behind `to`, and ends `from`, which the program must have released.
  // `copy_rest` copies everything beyond the given number of bytes, and waits for the copy. After
  // an Error both blocks are as they were, except for what deferred_bytes() reports for `to`. The
  // context must be quiescent.
  Result<Movable> transfer(WindowBlock& from, WindowBlock& to, Size bytes,
                           const std::function<Result<void>(Size)>& copy_rest);
  // Maps memory, with undefined contents, behind the bytes of a live block that have none yet.
  Result<void> back(WindowBlock& block);
  Size deferred_bytes(const WindowBlock& block) const;

  // The ends of the chunks of the block that a new one of that size probably takes over from, if
  // the chunks average at least `at_least` bytes. Called under the lock.
  std::vector<Size> likely_cuts(const Shape& shape, Size at_least) const;

 private:
  enum class Filler : std::uint8_t { Allowed, None };
  enum class IfRefused : std::uint8_t { Restore, Nothing };

  // Under the lock, but for take_backing().
  Result<std::vector<ChunkRef>> take_backing(Size wanted);
  Movable plan_hand_over(const WindowBlock& from, const WindowBlock& to, Size bytes,
                         Filler filler) const;
  Result<void> exchange_front(WindowBlock& block, std::size_t count,
                              const std::vector<ChunkRef>& after, IfRefused if_refused);
  void end_emptied(WindowBlock& block);

  WindowTable& table_;
  WindowCompactor& compactor_;
  ChunkStore& store_;
  const WindowSettings& settings_;
  ReclaimClient& windows_;
};

}  // namespace cuvmm
