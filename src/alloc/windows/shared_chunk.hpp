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

// A chunk of one granule that pieces of several blocks share: each is mapped whole into the windows
// of all of them, and every block keeps to its own bytes. At 10^5 of them, small.
struct SharedChunk {
  // Tells it from those that had the record before and will have it after. 0: nobody has it.
  using Id = std::uint32_t;
  // Bytes of a granule, which is far below 4 GiB.
  using Bytes = std::uint32_t;

  ChunkRef chunk;
  ChunkFormat* format = nullptr;  // what it was made for
  PieceList pieces;               // by offset, none over another; freed ones that are mapped too
  SlotOrder order;                // in which that format's slots are handed out here
  Id id = 0;
  std::uint32_t place = 0;  // among all
  Bytes vacant_bytes = 0;   // in no piece
  Bytes largest_vacancy = 0;
  std::uint16_t in_use = 0;        // of the pieces: neither ready nor leaving
  std::uint16_t pinned = 0;        // of the pieces
  std::uint16_t copies = 0;        // that run through windows of this chunk: none is unmapped
  bool retired : 1 = false;        // another process may write to any of it: no new blocks, ever
  bool emptying : 1 = false;       // compaction moves its pieces away
  bool is_open : 1 = false;        // among those of its format with a slot to hand out
  std::uint8_t vacancy_class = 0;  // among those with vacant bytes; 0: none
  Links<SharedChunk> of_format;
  Links<SharedChunk> of_class;
  Links<SharedChunk> of_idle;

  SharedChunk*& next_unused() { return of_idle.next; }
  Size size() const { return chunk->size(); }
  Residency residency() const;
  bool takes_blocks() const { return !retired && !emptying && pinned == 0; }
  Stretch where(const WindowBlock& block) const { return block.placed(size()).piece(); }

  // No piece has bytes there.
  bool is_vacant(Stretch wanted) const {
    const auto at = first_reaching(wanted.offset);
    return at == pieces.end() || where(**at).offset >= wanted.end();
  }
  // The same, if ready ones were unmapped.
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

  // Upwards through what is in no piece, while `visit(Stretch)` says true.
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
