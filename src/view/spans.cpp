// SPDX-License-Identifier: Apache-2.0
#include "view/spans.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::view {

bool SpanSet::contains(const Span& span) const {
  auto after = spans_.upper_bound(span.begin);
  return after != spans_.begin() && std::prev(after)->second >= span.end;
}

void SpanSet::add(const Span& span) {
  if (span.begin >= span.end || contains(span)) return;
  Span joined = span;
  auto at = spans_.upper_bound(span.begin);
  if (at != spans_.begin() && std::prev(at)->second >= span.begin) --at;
  while (at != spans_.end() && at->first <= joined.end) {
    joined = {std::min(joined.begin, at->first), std::max(joined.end, at->second)};
    size_ -= at->second - at->first;
    at = spans_.erase(at);
  }
  spans_.emplace(joined.begin, joined.end);
  size_ += joined.size();
}

void SpanSet::remove(const Span& span) {
  if (span.begin >= span.end) return;
  auto at = spans_.upper_bound(span.begin);
  if (at != spans_.begin()) --at;
  while (at != spans_.end() && at->first < span.end) {
    const Span there{at->first, at->second};
    if (there.end <= span.begin) {
      ++at;
      continue;
    }
    at = spans_.erase(at);
    size_ -= there.size();
    for (const Span& rest : {Span{there.begin, std::min(there.end, span.begin)},
                             Span{std::max(there.begin, span.end), there.end}}) {
      if (rest.begin >= rest.end) continue;
      at = std::next(spans_.emplace(rest.begin, rest.end).first);
      size_ += rest.size();
    }
  }
}

std::vector<Span> SpanSet::all() const {
  std::vector<Span> all;
  all.reserve(spans_.size());
  for (const auto& [begin, end] : spans_) all.push_back({begin, end});
  return all;
}

std::vector<Span> SpanSet::within(const Span& span) const {
  std::vector<Span> common;
  auto at = spans_.upper_bound(span.begin);
  if (at != spans_.begin()) --at;
  for (; at != spans_.end() && at->first < span.end; ++at) {
    const Span both{std::max(at->first, span.begin), std::min(at->second, span.end)};
    if (both.begin < both.end) common.push_back(both);
  }
  return common;
}

CollapsedAddresses::CollapsedAddresses(const std::vector<Span>& spans, Size smallest_gap) {
  for (const Span& span : spans) {
    if (!parts_.empty() && span.begin - parts_.back().span.end <= smallest_gap) {
      parts_.back().span.end = span.end;
    } else {
      parts_.push_back({.span = span, .offset = 0});
    }
  }
  for (Part& part : parts_) {
    part.offset = size_;
    size_ += part.span.size();
  }
}

std::vector<CollapsedAddresses::Part>::const_iterator CollapsedAddresses::first_part_of(
    const Span& span) const {
  return std::partition_point(parts_.begin(), parts_.end(),
                              [&](const Part& part) { return part.span.end <= span.begin; });
}

}  // namespace cuvmm::view
