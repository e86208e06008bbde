// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "view/memory_walk.hpp"

namespace cuvmm::view {

// A set of addresses, as disjoint spans that do not touch.
class SpanSet {
 public:
  void add(const Span& span);
  void remove(const Span& span);
  bool contains(const Span& span) const;
  Size size() const { return size_; }
  std::size_t count() const { return spans_.size(); }
  std::vector<Span> all() const;
  // The parts of them that lie in `span`.
  std::vector<Span> within(const Span& span) const;

 private:
  std::map<std::uint64_t, std::uint64_t> spans_;  // begin -> end
  Size size_ = 0;
};

// Addresses with the gaps between spans removed, so that they fit into a picture.
class CollapsedAddresses {
 public:
  // `spans` must be sorted. Keeps gaps of at most `smallest_gap`.
  CollapsedAddresses(const std::vector<Span>& spans, Size smallest_gap);

  struct Part {
    Span span;
    Size offset;  // its beginning after collapsing
  };
  const std::vector<Part>& parts() const { return parts_; }
  Size size() const { return size_; }
  // Visits the pieces of the span that lie in a part; addresses outside all parts are skipped.
  template <class Visit>
  void for_each_piece(const Span& span, Visit&& visit) const {
    for (auto part = first_part_of(span); part != parts_.end() && part->span.begin < span.end;
         ++part) {
      const std::uint64_t begin = std::max(span.begin, part->span.begin);
      const std::uint64_t end = std::min(span.end, part->span.end);
      if (begin < end) {
        visit(part->offset + (begin - part->span.begin), part->offset + (end - part->span.begin));
      }
    }
  }

 private:
  std::vector<Part>::const_iterator first_part_of(const Span& span) const;

  std::vector<Part> parts_;
  Size size_ = 0;
};

}  // namespace cuvmm::view
