// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/size.hpp"

namespace cuvmm {

// Granules, by number, that have one chunk behind them all. Not synchronised.
class SharedGranules {
 public:
  bool is_empty() const { return groups_.empty(); }
  bool is_shared(Size granule) const { return groups_.contains(granule); }
  // All that share the granule's chunk, itself among them; empty where nobody does.
  const std::vector<Size>& sharing(Size granule) const {
    static const std::vector<Size> nobody;
    const auto found = groups_.find(granule);
    return found != groups_.end() ? *found->second : nobody;
  }

  // From now on `granule`, which was alone, has the chunk of `with`.
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

  // Every granule that shares its chunk: `visit(Size)`.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [granule, group] : groups_) visit(granule);
  }

 private:
  std::unordered_map<Size, std::shared_ptr<std::vector<Size>>> groups_;
};

}  // namespace cuvmm
