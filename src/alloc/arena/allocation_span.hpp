// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "alloc/arena/layout.hpp"
#include "alloc/arena/whole_chunks.hpp"

namespace cuvmm::arena {

// Missing memory of a span: one end of a hole, or all of it.
struct Gap {
  Range* hole;
  Stretch missing;  // in units

  // Whether chunks are laid from the end of the missing part downwards, rather than upwards from
  // its beginning. They may reach beyond it into the rest of the hole.
  bool is_at_the_back() const { return missing.offset != hole->begin(); }
};

// Addresses at which a block could be built: free ranges that the stream may use, and holes.
struct AllocationSpan {
  Stretch where;
  Size missing = 0;
  Range* first = nullptr;  // contains the beginning
  std::vector<Gap> gaps;
};

// Whether `is_one(const Range&)` is true for any of the free ranges in the span.
template <class IsOne>
bool any_free_in(const AllocationSpan& span, IsOne is_one) {
  const Range* range = span.first;
  while (range->begin() > span.where.offset) range = static_cast<const Range*>(range->before);
  for (;; range = static_cast<const Range*>(range->after)) {
    const bool is_taken = range->kind == TileKind::Free && range->end() > span.where.offset;
    if (is_taken && is_one(*range)) return true;
    if (range->end() >= span.where.end()) return false;
  }
}

// Where the memory of a block may lie.
enum class ResidencyFilter : std::uint8_t { Near, Far, Both };

inline bool is_within(ResidencyFilter reach, const Range& range) {
  return reach == ResidencyFilter::Both ||
         (reach == ResidencyFilter::Far) == (range.residency == Residency::Far);
}

// Whether the stream may use the range's memory now, or could after waiting for the free.
enum class Use : std::uint8_t { Now, AfterFollowing };
bool may_use(const Range& range, StreamId stream, const StreamOrder& order, Use use = Use::Now);

// Whether no work uses the range's memory any longer, so that it may leave or move.
inline bool is_idle(const Range& range, const StreamOrder& order) {
  return range.freeing.ticket.is_for_anyone() || order.is_done(range.freeing.ticket);
}

// Searches for the span that lacks the least memory.
class AllocationSpanSearch {
 public:
  enum class Effort : std::uint8_t { Usual, All };
  struct Wanted {
    Size size;
    StreamId stream;
    Effort effort;
    // Bytes in hand or movable. They include those in the span itself, which must stay there; spans
    // for which the rest suffices are preferred. `unlimited` unless memory is scarce.
    Size spare = unlimited;
    ResidencyFilter reach = ResidencyFilter::Near;
    Use use = Use::Now;
  };

  AllocationSpanSearch(const Layout& layout, const Mapping& mapping, const StreamOrder& order,
                       const Wanted& wanted)
      : layout_(layout), whole_(mapping), order_(order), wanted_(wanted) {}

  std::optional<AllocationSpan> find();

 private:
  // Limits of the usual effort: the number of holes, and of ranges on each side of a hole.
  static constexpr std::size_t usual_holes = 32;
  static constexpr std::size_t usual_walk = 32;

  // One of several adjacent free ranges and holes, in address order.
  struct Part {
    Range* range;
    Stretch whole{};        // the whole chunks that could leave or move, if memory is scarce
    Size holes_before = 0;  // bytes of holes, and of whole chunks, lower in the run
    Size whole_before = 0;
  };
  struct Rated {
    Stretch where;
    Size missing = unlimited;
    bool is_enough = false;
    bool is_better_than(const Rated& other) const {
      if (is_enough != other.is_enough) return is_enough;
      return missing != other.missing ? missing < other.missing : where.offset < other.where.offset;
    }
  };
  enum class Edge : std::uint8_t { Begin, End };

  bool is_part(const Tile* tile) const;
  void consider_run_of(Range& hole);
  bool collect_run(Range& hole);
  void add_up_run();
  void consider(Size begin);
  const Part& part_at(Size offset) const;
  Size holes_up_to(Size offset, Edge edge) const;
  Size whole_up_to(Size offset, Edge edge) const;
  std::vector<Gap> gaps_of(const Stretch& where) const;

  Size run_begin() const { return run_.front().range->begin(); }
  Size run_end() const { return run_.back().range->end(); }

  const Layout& layout_;
  const WholeChunks whole_;
  const StreamOrder& order_;
  const Wanted wanted_;
  std::vector<Part> run_;
  Rated best_;
  Range* first_ = nullptr;  // of the best span
  std::vector<Gap> gaps_;
};

}  // namespace cuvmm::arena
