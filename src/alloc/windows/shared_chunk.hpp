// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "alloc/windows/piece_list.hpp"
#include "alloc/windows/slot_order.hpp"
#include "alloc/windows/window_block.hpp"
#include "base/invariant.hpp"

namespace cuvmm {

struct ChunkFormat;

// A chunk of one granule that pieces of several blocks share. It is mapped whole into the windows
// of all of them, and each block uses only its own bytes. There are 10^5 of these, so they are
// small.
struct SharedChunk {
  // Distinguishes the chunk from earlier and later users of the record. 0: the record is unused.
  using Id = std::uint32_t;
  // Bytes of a granule, which is far below 4 GiB.
  using Bytes = std::uint32_t;

  ChunkRef chunk;
  ChunkFormat* format = nullptr;  // for which it was made
  PieceList pieces;               // by offset, not overlapping; including freed but mapped ones
  SlotOrder order;                // in which that format's slots are handed out here
  Id id = 0;
  std::uint32_t place = 0;  // index among all chunks
  Bytes vacant_bytes = 0;   // in no piece
  Bytes largest_vacancy = 0;
  std::uint16_t in_use = 0;        // pieces that are neither ready nor leaving
  std::uint16_t pinned = 0;        // pieces
  std::uint16_t copies = 0;        // in flight through windows of this chunk: do not unmap any
  bool retired : 1 = false;        // another process may write to any of it: never takes new blocks
  bool emptying : 1 = false;       // compaction is moving its pieces away
  bool is_open : 1 = false;        // in its format's list of chunks with a slot to hand out
  std::uint8_t vacancy_class = 0;  // the list by vacancy that it is in; 0: none
  Links<SharedChunk> of_format;
  Links<SharedChunk> of_class;
  Links<SharedChunk> of_idle;

  SharedChunk*& next_unused() { return of_idle.next; }
  Size size() const { return chunk->size(); }
  Residency residency() const;
  bool takes_blocks() const { return !retired && !emptying && pinned == 0; }
  Stretch where(const WindowBlock& block) const { return block.placed(size()).piece(); }

  // Whether no piece has bytes there.
  bool is_vacant(Stretch wanted) const {
    const auto at = first_reaching(wanted.offset);
    return at == pieces.end() || where(**at).offset >= wanted.end();
  }
  // The same, if ready pieces were unmapped.
  bool could_be_vacant(Stretch wanted) const {
    return std::none_of(first_reaching(wanted.offset), pieces.end(), [&](const WindowBlock* piece) {
      return piece->state != WindowBlock::State::Ready && where(*piece).overlaps(wanted);
    });
  }
  std::vector<WindowBlock*> pieces_over(Stretch wanted) const {
    std::vector<WindowBlock*> found;
    for (auto at = first_reaching(wanted.offset); at != pieces.end(); ++at) {
      if (where(**at).offset >= wanted.end()) break;
      found.push_back(*at);
    }
    return found;
  }

  // Visits the bytes that are in no piece, in address order, while `visit(Stretch)` returns true.
  template <class Visit>
  void for_each_vacancy(Visit visit) const {
    Size reached = 0;
    for (const WindowBlock* piece : pieces) {
      const Stretch taken = where(*piece);
      if (taken.offset > reached && !visit(Stretch{reached, taken.offset - reached})) return;
      reached = taken.end();
    }
    if (reached < size()) visit(Stretch{reached, size() - reached});
  }

  void insert(WindowBlock& block) {
    const Size offset = where(block).offset;
    pieces.insert(
        std::find_if(pieces.begin(), pieces.end(),
                     [&](const WindowBlock* other) { return where(*other).offset > offset; }),
        block);
  }
  void erase(WindowBlock& block) { pieces.erase(std::find(pieces.begin(), pieces.end(), &block)); }

 private:
  PieceList::Iterator first_reaching(Size offset) const {
    return std::find_if(pieces.begin(), pieces.end(),
                        [&](const WindowBlock* piece) { return where(*piece).end() > offset; });
  }
};
static_assert(sizeof(SharedChunk) <= 112);

}  // namespace cuvmm
