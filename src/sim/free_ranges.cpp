// SPDX-License-Identifier: Apache-2.0
#include "sim/free_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {
namespace {

// Whether whoever may use the one may use the other, now or later: both wait for nothing, or for
// the same stream.
bool are_alike(const std::vector<Point>& a, const std::vector<Point>& b) {
  if (a.empty() && b.empty()) return true;
  return a.size() == 1 && b.size() == 1 && a.front().queue == b.front().queue;
}

void add_points(std::vector<Point>& all, const std::vector<Point>& more) {
  for (const Point& point : more) {
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const Point& known) { return known.queue == point.queue; });
    if (same == all.end()) {
      all.push_back(point);
    } else {
      same->number = std::max(same->number, point.number);
    }
  }
}

}  // namespace

FreeRanges::ByAddress::iterator FreeRanges::join_with_previous(ByAddress::iterator range) {
  if (range == by_address_.begin()) return range;
  const auto before = std::prev(range);
  const bool adjoins = before->first + before->second.size == range->first;
  if (!adjoins || !are_alike(before->second.after, range->second.after)) return range;
  by_size_.erase({before->second.size, before->first});
  by_size_.erase({range->second.size, range->first});
  before->second.size += range->second.size;
  add_points(before->second.after, range->second.after);
  by_size_.insert({before->second.size, before->first});
  by_address_.erase(range);
  return before;
}

void FreeRanges::add(FreeRange range) {
  const auto [added, fresh] =
      by_address_.try_emplace(range.address, Rest{range.size, std::move(range.after)});
  if (!fresh) return;
  by_size_.insert({range.size, range.address});
  const auto joined = join_with_previous(added);
  if (const auto next = std::next(joined); next != by_address_.end()) join_with_previous(next);
}

FreeRange FreeRanges::cut(ByAddress::iterator range, CUdeviceptr address, Size size) {
  const CUdeviceptr begin = range->first;
  const CUdeviceptr end = begin + range->second.size;
  by_size_.erase({range->second.size, begin});
  FreeRange taken{address, size, {}};
  const bool keeps_head = begin < address;
  const bool keeps_tail = address + size < end;
  if (keeps_head || keeps_tail) {
    taken.after = range->second.after;
  } else {
    taken.after = std::move(range->second.after);
  }
  if (keeps_tail) {
    by_address_.try_emplace(std::next(range), address + size,
                            Rest{end - (address + size), taken.after});
    by_size_.insert({end - (address + size), address + size});
  }
  if (keeps_head) {
    range->second.size = address - begin;
    by_size_.insert({range->second.size, begin});
  } else {
    by_address_.erase(range);
  }
  return taken;
}

std::vector<Point> FreeRanges::take(CUdeviceptr address, Size size) {
  std::vector<Point> after;
  const CUdeviceptr end = address + size;
  auto range = by_address_.upper_bound(address);
  if (range != by_address_.begin()) --range;
  while (range != by_address_.end() && range->first < end) {
    const CUdeviceptr from = std::max(address, range->first);
    const CUdeviceptr to = std::min(end, range->first + range->second.size);
    const auto next = std::next(range);
    if (from < to) add_points(after, cut(range, from, to - from).after);
    range = next;
  }
  return after;
}

}  // namespace cuvmm::sim
