// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "alloc/arena/range_list.hpp"
#include "alloc/arena/size_index.hpp"

namespace cuvmm::arena {

// The free ranges of an arena, indexed by owning stream and size, and those of at least one unit
// also by last use. A range keeps its owner while it is in here.
class FreeRanges {
 public:
  explicit FreeRanges(Size unit) : unit_(unit) {}

  void add_as_newest(Range& range);
  // Adds a part that was cut off `from`, which is in here. The part has the same age.
  void add_beside(Range& range, Range& from);
  void remove(Range& range);

  // Change a range that is in here.
  void resize(Range& range, const Stretch& where);
  void give_to(Range& range, const Freeing& freeing);
  void be(Range& range, Residency residency);
  // Makes the range as recent as `other`, which is in here too.
  void share_age(Range& range, Range& other);

  // Searches only the ranges of that owner; no_stream: those that are free for any stream.
  template <class Accept>
  Range* best_fit(StreamId owner, Size size, Patience patience, Accept accept) const {
    const SizeIndex* const index = find(owner);
    return index != nullptr ? index->best_fit(size, patience, accept) : nullptr;
  }
  Range* best_fit(StreamId owner, Size size, Patience patience) const {
    return best_fit(owner, size, patience, [](const Range&) { return true; });
  }

  // Calls `visit(StreamId, const SizeIndex&)` for each stream that owns ranges.
  template <class Visit>
  void for_each_stream(Visit visit) const {
    for (const auto& [stream, index] : streams_) {
      if (index->count() != 0) visit(stream, *index);
    }
  }
  // The ranges that are now free for anyone, as `is_free(FreeTicket)` says. The device completes a
  // stream's frees in order, so there may be thousands of ranges, and a few questions suffice.
  template <class IsFree>
  std::vector<Range*> reached(IsFree is_free) {
    std::vector<Range*> found;
    for (auto& [stream, index] : streams_) {
      if (index->count() == 0) continue;
      const std::optional<std::uint64_t> last_free =
          last_true(index->earliest(), index->latest(), [&, owner = stream](std::uint64_t tick) {
            return is_free(FreeTicket{owner, tick});
          });
      if (!last_free) continue;
      std::uint64_t first_pending = index->latest();
      index->for_each([&](Range& range) {
        const std::uint64_t tick = range.freeing.ticket.tick;
        if (tick <= *last_free) {
          found.push_back(&range);
        } else {
          first_pending = std::min(first_pending, tick);
        }
      });
      index->raise_earliest(first_pending);
    }
    return found;
  }
  const SizeIndex& for_anyone() const { return for_anyone_; }
  // The number of streams that own ranges; may be too high by up to most_unused.
  std::size_t owners() const { return streams_.size(); }

  const RangeList& by_age() const { return by_age_; }
  Size bytes() const { return bytes_; }
  Size far_bytes() const { return far_bytes_; }  // of them
  std::size_t count() const { return count_; }
  Size largest() const;
  // A number that changes with every change of the ranges, their owners or their residency.
  std::uint64_t changes() const { return changes_; }

 private:
  // At most this many streams keep an index without ranges.
  static constexpr std::size_t most_unused = 64;

  // The last tick from `first` to `last` for which `holds`; nullopt if there is none. Once it fails
  // for a tick, it fails for all later ones.
  template <class Holds>
  static std::optional<std::uint64_t> last_true(std::uint64_t first, std::uint64_t last,
                                                Holds holds) {
    if (!holds(first)) return {};
    if (holds(last)) return last;
    while (last - first > 1) {
      const std::uint64_t middle = first + (last - first) / 2;
      (holds(middle) ? first : last) = middle;
    }
    return first;
  }

  const SizeIndex* find(StreamId owner) const;
  SizeIndex& index_of(StreamId owner);
  void leave(Range& range);
  bool is_large(Size size) const { return size >= unit_; }

  void add_bytes(const Range& range) {
    ++changes_;
    bytes_ += range.size();
    if (range.residency == Residency::Far) far_bytes_ += range.size();
  }
  void take_bytes(const Range& range) {
    ++changes_;
    bytes_ -= range.size();
    if (range.residency == Residency::Far) far_bytes_ -= range.size();
  }

  const Size unit_;
  SizeIndex for_anyone_;
  std::unordered_map<StreamId, std::unique_ptr<SizeIndex>> streams_;
  RangeList by_age_;
  std::uint64_t clock_ = 0;
  std::uint64_t changes_ = 0;
  Size bytes_ = 0;
  Size far_bytes_ = 0;
  std::size_t count_ = 0;
};

}  // namespace cuvmm::arena
