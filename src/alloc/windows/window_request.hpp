// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "alloc/windows/shared_chunks.hpp"
#include "base/error.hpp"
#include "vmm/memory_in_hand.hpp"

namespace cuvmm {

// An allocation in progress, and the chunks that it has taken so far. Those that it does not use
// return to the store when it ends.
struct WindowRequest {
  std::optional<MemoryInHand::Holder> in_hand = {};  // once it takes chunks
  Shape shape;
  Look look = Look::Lightly;
  std::vector<ChunkRef> whole = {};  // chunks for the whole granules
  Size whole_bytes = 0;
  ChunkRef spare = {};                // a chunk to share, for the piece
  bool needs_spare = false;           // the last search found no place for the piece
  std::vector<Size> cuts = {};        // ends of the chunks of the block that it may take over from
  Size deferred_bytes = 0;            // at the beginning, to be left without memory
  Residency reach = Residency::Near;  // Far: the device has no room after all attempts

  Size backed_whole() const { return shape.whole_bytes() - deferred_bytes; }
  Size missing_whole() const { return backed_whole() - whole_bytes; }
  // Size of the next chunk: the largest that crosses no cut.
  Size next_whole() const {
    const Size reached = deferred_bytes + whole_bytes;
    const auto cut = std::upper_bound(cuts.begin(), cuts.end(), reached);
    return (cut != cuts.end() ? *cut : shape.whole_bytes()) - reached;
  }
  // They return to the store.
  void drop_chunks() {
    whole.clear();
    whole_bytes = 0;
    spare = {};
  }
  void add_whole(ChunkRef chunk) {
    whole_bytes += chunk->size();
    whole.push_back(std::move(chunk));
  }
};

// Whether the failure is a lack of room, for which more can be tried.
inline bool is_for_want_of_room(const Error& error) {
  return error.kind == ErrorKind::OutOfMemory || error.kind == ErrorKind::OutOfAddresses;
}

}  // namespace cuvmm
