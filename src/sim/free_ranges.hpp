// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"
#include "sim/executor.hpp"

namespace cuvmm::sim {

// Memory of a pool that belongs to no allocation.
struct FreeRange {
  CUdeviceptr address = 0;
  Size size = 0;
  // The end of the work that may still use it. Empty if the program waited for that work, or if
  // nothing ever used the memory.
  std::vector<Point> after;

  CUdeviceptr end() const { return address + size; }
};

// A pool's free memory, by address and by size. Neighbours are merged if the same stream may use
// both at the same time.
class FreeRanges {
 public:
  struct Rest {
    Size size = 0;
    std::vector<Point> after;
  };
  using ByAddress = std::map<CUdeviceptr, Rest>;

  void add(FreeRange range);

  // Takes `size` bytes from the smallest usable range that is large enough.
  template <class Usable>
  std::optional<CUdeviceptr> take_best_fit(Size size, Usable&& usable) {
    for (auto fit = by_size_.lower_bound({size, 0}); fit != by_size_.end(); ++fit) {
      const auto found = by_address_.find(fit->second);
      if (!usable(found->second.after)) continue;
      const CUdeviceptr address = found->first;
      take_front(found, fit, size);
      return address;
    }
    return std::nullopt;
  }

  // Takes exactly these bytes, which may lie in several ranges; skips bytes that lie in none.
  // Returns the points after which they may be used.
  std::vector<Point> take(CUdeviceptr address, Size size);

  // Removes the points for which `is_past` is true, and merges ranges that become alike.
  template <class IsPast>
  void forget_points(IsPast&& is_past) {
    for (auto range = by_address_.begin(); range != by_address_.end();) {
      std::erase_if(range->second.after, is_past);
      range = std::next(join_with_previous(range));
    }
  }

  const ByAddress& by_address() const { return by_address_; }
  bool empty() const { return by_address_.empty(); }

 private:
  using BySize = std::set<std::pair<Size, CUdeviceptr>>;
  void take_front(ByAddress::iterator range, BySize::iterator size, Size taken);
  void cut(ByAddress::iterator range, CUdeviceptr address, Size size);
  void resize(ByAddress::iterator range, Size size);
  ByAddress::iterator join_with_previous(ByAddress::iterator range);

  ByAddress by_address_;
  BySize by_size_;
};

}  // namespace cuvmm::sim
