// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "view/memory_walk.hpp"

namespace cuvmm::view {

// A set of addresses as spans that do not touch.
class SpanSet {
 public:
  void add(const Span& span);
  void remove(const Span& span);
  bool contains(const Span& span) const;
  Size size() const { return size_; }
  std::size_t count() const { return spans_.size(); }
  std::vector<Span> all() const;
  // What of them lies in `span`.
  std::vector<Span> within(const Span& span) const;

 private:
  std::map<std::uint64_t, std::uint64_t> spans_;  // begin -> end
  Size size_ = 0;
};

// Addresses laid end to end without the gaps between spans, so that they fit into a picture.
class CollapsedAddresses {
 public:
  // Spans in their order. Gaps of at most `smallest_gap` stay.
  CollapsedAddresses(const std::vector<Span>& spans, Size smallest_gap);

  struct Part {
    Span span;
    Size offset;  // where it begins once collapsed
  };
  const std::vector<Part>& parts() const { return parts_; }
  Size size() const { return size_; }
  // What of the span lies in a part; nothing for addresses of no part.
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
