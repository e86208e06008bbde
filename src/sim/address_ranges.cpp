// SPDX-License-Identifier: Apache-2.0
#include "sim/address_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {

void AddressRanges::cut(Free::iterator range, std::uint64_t address, Size size) {
  const std::uint64_t begin = range->first;
  const std::uint64_t end = begin + range->second;
  const auto after = free_.erase(range);
  if (address + size < end) free_.emplace_hint(after, address + size, end - (address + size));
  if (begin < address) free_.emplace(begin, address - begin);
}

std::optional<std::uint64_t> AddressRanges::take(Size size, Size alignment, std::uint64_t from) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const std::uint64_t address = round_up(std::max(range->first, from), alignment);
    const Size lost = address - range->first;
    if (range->second < lost || range->second - lost < size) continue;
    cut(range, address, size);
    return address;
  }
  return std::nullopt;
}

bool AddressRanges::take_at(std::uint64_t address, Size size) {
  auto range = free_.upper_bound(address);
  if (range == free_.begin()) return false;
  --range;
  const Size before = address - range->first;
  if (before > range->second || range->second - before < size) return false;
  cut(range, address, size);
  return true;
}

void AddressRanges::give_back(std::uint64_t address, Size size) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && address + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += size;
      return;
    }
  }
  free_.emplace_hint(next, address, size);
}

}  // namespace cuvmm::sim
