// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "vmm/stretch.hpp"

namespace cuvmm::arena {

// How small blocks of equal size share chunks from the start. A few chunks, one after another, are
// cut into stripes of one or a few blocks, and each stripe lies at granules of addresses of its
// own. What is live behind a granule then has few possible patterns, so that two granules with the
// same stripe of different chunks often fit into one chunk.
class Stripes {
 public:
  // Not for blocks of which a few fill a granule anyway. `unit` is the size of a chunk and of a
  // granule of addresses.
  static bool are_for(Size block, Size unit);
  // For a device with memory for `chunks` chunks. Short stripes have fewer patterns, but each needs
  // a mapping of its own. So stripes are as long as possible while many chunks still have the same
  // pattern.
  static Size blocks_a_stripe(Size block, Size unit, Size chunks);
  static Stripes of(Size block, Size unit, Size blocks_a_stripe);

  Size blocks_a_stripe() const { return blocks_a_stripe_; }
  Size chunks() const { return chunks_; }
  Size blocks() const { return chunks_ * unit_ / block_; }
  Size count() const { return (blocks() + blocks_a_stripe_ - 1) / blocks_a_stripe_; }

  // The same with another stripe last in the row. Lower addresses are allocated first, so rows
  // whose last stripes differ lead to the same patterns in all of them.
  Stripes rotated(Size first) const {
    Stripes other = *this;
    other.first_ = first;
    return other;
  }

  // The part of a chunk that belongs to one granule of addresses. The other granules have the rest.
  struct Part {
    Size chunk;
    Stretch where;  // in the chunk, and in the granule
  };
  // Of all granules of a row, in order.
  std::vector<Part> parts() const;
  // The addresses of all stripes in a row, from its begin. No two are adjacent, so that each
  // remains a free range of its own.
  std::vector<Stretch> stretches() const;

  auto operator<=>(const Stripes&) const = default;

 private:
  Stripes(Size block, Size unit, Size blocks_a_stripe)
      : block_(block), unit_(unit), blocks_a_stripe_(blocks_a_stripe) {}

  // Calls `visit(Stretch)` for the stripes in the order of the row, which is downwards, so that
  // none begins where the one before it ends. They count from the first chunk's first byte.
  template <class Visit>
  void for_each_stripe(Visit visit) const;

  Size block_;
  Size unit_;
  Size blocks_a_stripe_;
  Size chunks_ = 1;
  Size first_ = 0;
};

// The rows of granules that were laid in stripes, by their offset in the arena. A row may remain
// here after its memory is gone.
class StripeRows {
 public:
  struct Row {
    Size end;
    Stripes stripes;
  };

  // Forgets the rows that were there before.
  void add(const Stretch& where, const Stripes& stripes);
  void clear() { rows_.clear(); }
  const std::map<Size, Row>& all() const { return rows_; }

 private:
  std::map<Size, Row> rows_;
};

}  // namespace cuvmm::arena
