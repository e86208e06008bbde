// SPDX-License-Identifier: Apache-2.0
#include "pool/free_bytes.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace cuvmm {

FreeBytes::FreeBytes(Size capacity, Begin begin) : capacity_(capacity) {
  if (begin == Begin::AllFree && capacity != 0) add(0, capacity);
}

FreeBytes::ByOffset::const_iterator FreeBytes::at_or_before(Size offset) const {
  const auto above = by_offset_.upper_bound(offset);
  return above == by_offset_.begin() ? by_offset_.end() : std::prev(above);
}

bool FreeBytes::is_free(Stretch stretch) const {
  const auto place = at_or_before(stretch.offset);
  return place != by_offset_.end() && place->second >= stretch.end();
}

bool FreeBytes::is_taken(Stretch stretch) const {
  const auto before = at_or_before(stretch.offset);
  if (before != by_offset_.end() && before->second > stretch.offset) return false;
  const auto next = by_offset_.upper_bound(stretch.offset);
  return next == by_offset_.end() || next->first >= stretch.end();
}

std::optional<Size> FreeBytes::find(Size size, Size alignment) const {
  for (auto at = by_size_.lower_bound({size, 0}); at != by_size_.end(); ++at) {
    const auto [room, begin] = *at;
    const Size aligned = round_up(begin, alignment);
    if (aligned >= begin && aligned - begin <= room - size) return aligned;
  }
  return std::nullopt;
}

Size FreeBytes::free_at_front(Stretch stretch) const {
  const auto place = at_or_before(stretch.offset);
  if (place == by_offset_.end() || place->second <= stretch.offset) return 0;
  return std::min(place->second, stretch.end()) - stretch.offset;
}

Size FreeBytes::taken_at_front(Stretch stretch) const {
  if (free_at_front(stretch) != 0) return 0;
  const auto next = by_offset_.upper_bound(stretch.offset);
  const Size end = next == by_offset_.end() ? stretch.end() : std::min(next->first, stretch.end());
  return end - stretch.offset;
}

std::vector<Stretch> FreeBytes::free_in(Stretch stretch) const {
  std::vector<Stretch> found;
  auto at = at_or_before(stretch.offset);
  if (at == by_offset_.end() || at->second <= stretch.offset) {
    at = by_offset_.upper_bound(stretch.offset);
  }
  for (; at != by_offset_.end() && at->first < stretch.end(); ++at) {
    const Size begin = std::max(at->first, stretch.offset);
    found.push_back({begin, std::min(at->second, stretch.end()) - begin});
  }
  return found;
}

std::vector<Stretch> FreeBytes::taken_in(Stretch stretch) const {
  std::vector<Stretch> found;
  Size reached = stretch.offset;
  for (const Stretch& free : free_in(stretch)) {
    if (free.offset > reached) found.push_back({reached, free.offset - reached});
    reached = free.end();
  }
  if (reached < stretch.end()) found.push_back({reached, stretch.end() - reached});
  return found;
}

void FreeBytes::add(Size begin, Size end) {
  by_offset_.emplace(begin, end);
  by_size_.emplace(end - begin, begin);
  free_ += end - begin;
}

void FreeBytes::remove(ByOffset::const_iterator place) {
  free_ -= place->second - place->first;
  by_size_.erase({place->second - place->first, place->first});
  by_offset_.erase(place);
}

void FreeBytes::take(Stretch stretch) {
  const auto place = at_or_before(stretch.offset);
  const auto [begin, end] = *place;
  remove(place);
  if (begin < stretch.offset) add(begin, stretch.offset);
  if (stretch.end() < end) add(stretch.end(), end);
}

void FreeBytes::give(Stretch stretch) {
  Size begin = stretch.offset;
  Size end = stretch.end();
  const auto before = at_or_before(begin);
  if (before != by_offset_.end() && before->second == begin) {
    begin = before->first;
    remove(before);
  }
  const auto after = by_offset_.find(end);
  if (after != by_offset_.end()) {
    end = after->second;
    remove(after);
  }
  add(begin, end);
}

void FreeBytes::grow(Size capacity) {
  const Size before = capacity_;
  capacity_ = capacity;
  if (capacity > before) give({before, capacity - before});
}

InvariantViolation FreeBytes::violation() const {
  Size bytes = 0;
  Size reached = 0;
  bool first = true;
  for (const auto& [begin, end] : by_offset_) {
    const auto at = [offset = begin](const char* what) {
      return "free bytes: the stretch at offset " + std::to_string(offset) + " " + what;
    };
    if (end <= begin) return at("has no bytes");
    if (end > capacity_) return at("reaches beyond the capacity");
    if (!first && begin <= reached) return at("touches the one before it");
    if (!by_size_.contains({end - begin, begin})) return at("is not known by its size");
    first = false;
    reached = end;
    bytes += end - begin;
  }
  if (by_size_.size() != by_offset_.size())
    return "free bytes: sizes are known of what is not free";
  if (bytes != free_) return "free bytes: counted wrongly";
  return {};
}

}  // namespace cuvmm
