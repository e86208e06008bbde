// SPDX-License-Identifier: Apache-2.0
#include "sim/free_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {
namespace {

// Whether the same streams may use both ranges, now or later: neither waits for anything, or both
// wait for the same stream.
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

// Nodes are changed in place or moved instead of allocated anew where possible: node allocation
// dominates the time of an allocation.
void FreeRanges::resize(ByAddress::iterator range, Size size) {
  auto node = by_size_.extract({range->second.size, range->first});
  range->second.size = size;
  node.value() = {size, range->first};
  by_size_.insert(std::move(node));
}

void FreeRanges::take_front(ByAddress::iterator range, BySize::iterator size, Size taken) {
  if (range->second.size == taken) {
    by_size_.erase(size);
    by_address_.erase(range);
    return;
  }
  const auto next = std::next(range);
  auto by_address = by_address_.extract(range);
  auto by_size = by_size_.extract(size);
  by_address.key() += taken;
  by_address.mapped().size -= taken;
  by_size.value() = {by_address.mapped().size, by_address.key()};
  by_size_.insert(std::move(by_size));
  by_address_.insert(next, std::move(by_address));
}

FreeRanges::ByAddress::iterator FreeRanges::join_with_previous(ByAddress::iterator range) {
  if (range == by_address_.begin()) return range;
  const auto before = std::prev(range);
  const bool adjoins = before->first + before->second.size == range->first;
  if (!adjoins || !are_alike(before->second.after, range->second.after)) return range;
  add_points(before->second.after, range->second.after);
  by_size_.erase({range->second.size, range->first});
  resize(before, before->second.size + range->second.size);
  by_address_.erase(range);
  return before;
}

void FreeRanges::add(FreeRange range) {
  const auto next = by_address_.lower_bound(range.address);
  if (next != by_address_.begin()) {
    const auto before = std::prev(next);
    const bool adjoins = before->first + before->second.size == range.address;
    if (adjoins && are_alike(before->second.after, range.after)) {
      add_points(before->second.after, range.after);
      resize(before, before->second.size + range.size);
      if (next != by_address_.end()) join_with_previous(next);
      return;
    }
  }
  by_size_.insert({range.size, range.address});
  by_address_.emplace_hint(next, range.address, Rest{range.size, std::move(range.after)});
  if (next != by_address_.end()) join_with_previous(next);
}

void FreeRanges::cut(ByAddress::iterator range, CUdeviceptr address, Size size) {
  const CUdeviceptr begin = range->first;
  const CUdeviceptr end = begin + range->second.size;
  if (address + size < end) {
    const Size rest = end - (address + size);
    by_address_.try_emplace(std::next(range), address + size, Rest{rest, range->second.after});
    by_size_.insert({rest, address + size});
  }
  if (begin < address) {
    resize(range, address - begin);
  } else {
    by_size_.erase({range->second.size, begin});
    by_address_.erase(range);
  }
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
    if (from < to) {
      add_points(after, range->second.after);
      cut(range, from, to - from);
    }
    range = next;
  }
  return after;
}

}  // namespace cuvmm::sim
