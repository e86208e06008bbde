// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/made_once.hpp"
#include "base/size.hpp"

namespace cuvmm {

// Groups of granules, by number, with one chunk behind each group. Not thread-safe.
class SharedGranules {
 public:
  bool is_empty() const { return groups_.empty(); }
  bool is_shared(Size granule) const { return groups_.contains(granule); }
  // All granules that share the granule's chunk, including itself; empty if it is not shared.
  const std::vector<Size>& sharing(Size granule) const {
    const auto found = groups_.find(granule);
    if (found != groups_.end()) return *found->second;
    static constinit MadeOnce<const std::vector<Size>> nobody;
    return nobody.get();
  }

  // Makes `granule`, which must be alone, share the chunk of `with`.
  void join(Size granule, Size with) {
    auto& group = groups_[with];
    if (group == nullptr) group = std::make_shared<std::vector<Size>>(1, with);
    group->push_back(granule);
    groups_[granule] = group;
  }
  void leave(Size granule) {
    const auto found = groups_.find(granule);
    if (found == groups_.end()) return;
    const auto group = found->second;
    groups_.erase(found);
    std::erase(*group, granule);
    if (group->size() == 1) groups_.erase(group->front());
  }
  void clear() { groups_.clear(); }

  // Calls `visit(Size)` for every granule that shares its chunk.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [granule, group] : groups_) visit(granule);
  }

 private:
  std::unordered_map<Size, std::shared_ptr<std::vector<Size>>> groups_;
};

}  // namespace cuvmm
