// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/free_ranges.hpp"

#include <algorithm>

namespace cuvmm::arena {

const SizeIndex* FreeRanges::find(StreamId owner) const {
  if (owner == no_stream) return &for_anyone_;
  const auto found = streams_.find(owner);
  return found != streams_.end() ? found->second.get() : nullptr;
}

SizeIndex& FreeRanges::index_of(StreamId owner) {
  if (owner == no_stream) return for_anyone_;
  std::unique_ptr<SizeIndex>& index = streams_[owner];
  if (index == nullptr) index = std::make_unique<SizeIndex>();
  return *index;
}

void FreeRanges::add_as_newest(Range& range) {
  index_of(range.freeing.ticket.stream).add(range);
  range.used_at = ++clock_;
  if (is_large(range.size())) by_age_.push(range);
  add_bytes(range);
  ++count_;
}

void FreeRanges::add_beside(Range& range, Range& from) {
  index_of(range.freeing.ticket.stream).add(range);
  range.used_at = from.used_at;
  if (is_large(range.size())) by_age_.insert_after(&from, range);
  add_bytes(range);
  ++count_;
}

void FreeRanges::remove(Range& range) {
  leave(range);
  if (is_large(range.size())) by_age_.remove(range);
  take_bytes(range);
  --count_;
}

// Streams come and go, and their numbers are never reused.
void FreeRanges::leave(Range& range) {
  if (range.freeing.ticket.is_for_anyone()) return for_anyone_.remove(range);
  const auto found = streams_.find(range.freeing.ticket.stream);
  found->second->remove(range);
  if (found->second->count() == 0 && streams_.size() > most_unused) streams_.erase(found);
}

void FreeRanges::resize(Range& range, const Stretch& where) {
  SizeIndex& index = index_of(range.freeing.ticket.stream);
  index.remove(range);
  const bool was_large = is_large(range.size());
  take_bytes(range);
  range.where = where;
  add_bytes(range);
  range.knows_whole = false;
  index.add(range);
  if (was_large && !is_large(where.size)) by_age_.remove(range);
  if (!was_large && is_large(where.size)) {
    range.used_at = ++clock_;
    by_age_.push(range);
  }
}

void FreeRanges::give_to(Range& range, const Freeing& freeing) {
  ++changes_;
  leave(range);
  range.freeing = freeing;
  index_of(freeing.ticket.stream).add(range);
}

void FreeRanges::be(Range& range, Residency residency) {
  take_bytes(range);
  range.residency = residency;
  add_bytes(range);
}

void FreeRanges::share_age(Range& range, Range& other) {
  if (range.used_at >= other.used_at) return;
  if (is_large(range.size()) && is_large(other.size())) {
    by_age_.remove(range);
    by_age_.insert_after(&other, range);
    range.used_at = other.used_at;
  }
}

Size FreeRanges::largest() const {
  Size largest = for_anyone_.largest();
  for_each_stream(
      [&](StreamId, const SizeIndex& index) { largest = std::max(largest, index.largest()); });
  return largest;
}

}  // namespace cuvmm::arena
