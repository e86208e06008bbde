// SPDX-License-Identifier: Apache-2.0
// Carrying out a plan, and undoing it.
#include <algorithm>
#include <utility>

#include "vmm/insist.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {
namespace {

// Calls `act(first, last)` for each run of contiguous steps in the same mapping with the same
// rights.
template <class Steps, class Act>
Result<void> for_each_run(const Steps& steps, Act act) {
  for (auto first = steps.begin(); first != steps.end();) {
    auto last = first;
    for (auto next = std::next(first); next != steps.end(); last = next, ++next) {
      if (next->mapping != first->mapping || !(next->access == first->access) ||
          next->where().offset != last->where().end()) {
        break;
      }
    }
    TRY(act(*first, *last));
    first = std::next(last);
  }
  return {};
}

template <class Step>
Stretch from_to(const Step& first, const Step& last) {
  return {first.where().offset, last.where().end() - first.where().offset};
}

}  // namespace

Result<void> MapPlan::commit() {
  left_out_.clear();
  TRY(validate());
  Progress progress;
  const Result<void> done = carry_out(progress);
  if (done.ok()) {
    clear();
    return {};
  }
  Error error = done.error();
  if (!undo(progress)) error.subject = "and what was done before it could not all be undone";
  leaving_.clear();
  return error;
}

Result<void> MapPlan::carry_out(Progress& progress) {
  for (Leaving& leaving : leaving_) {
    leaving.entry = TRY(leaving.mapping->detach(leaving.place));
    ++progress.unmapped;
  }
  Mapping::Iterator next;
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const Map& map = maps_[i];
    const bool follows = i != 0 && maps_[i - 1].mapping == map.mapping;
    if (!follows) next = map.mapping->chunks_.lower_bound(map.offset);
    next = std::next(TRY(map.mapping->attach({map.offset, map.chunk, map.access}, next)));
    ++progress.mapped;
  }
  TRY(give_access_to_mapped());
  for (const Allow& allow : allows_) TRY(change_access(allow, progress));
  return {};
}

Result<void> MapPlan::give_access_to_mapped() {
  return for_each_run(maps_, [](const Map& first, const Map& last) {
    return first.mapping->set_access(from_to(first, last), AccessSet::none(), first.access);
  });
}

Result<void> MapPlan::change_access(const Allow& allow, Progress& progress) {
  // Adjacent chunks may have had different rights: one call revokes what any of them had.
  std::vector<Allowed> changed;
  AccessSet had;
  for (auto at = allow.mapping->first_reaching(allow.stretch.offset);
       at != allow.mapping->chunks_.end() && at->first < allow.stretch.end(); ++at) {
    const MappedChunk& mapped = at->second;
    had = had | mapped.access;
    if (!changed.empty() && changed.back().before == mapped.access) {
      changed.back().stretch.size += mapped.where().size;
    } else {
      changed.push_back({allow.mapping, mapped.where(), mapped.access, allow.access});
    }
  }
  if (changed.size() == 1 && changed.front().before == allow.access) return {};
  // Recorded first, because a refused call may have changed some of the chunks.
  progress.allowed.insert(progress.allowed.end(), changed.begin(), changed.end());
  return allow.mapping->set_access(allow.stretch, had, allow.access);
}

bool MapPlan::undo(Progress& progress) {
  bool complete = true;
  for (auto at = progress.allowed.rbegin(); at != progress.allowed.rend(); ++at) {
    complete &= insist([&] { return at->mapping->set_access(at->stretch, at->after, at->before); });
  }
  for (std::size_t i = progress.mapped; i-- > 0;) {
    Mapping& mapping = *maps_[i].mapping;
    const auto place = mapping.chunks_.find(maps_[i].offset);
    complete &= insist([&] { return mapping.detach(place); });
  }
  leaving_.resize(progress.unmapped);
  for (std::size_t i = progress.unmapped; i-- > 0;) complete &= put_back(leaving_[i]);
  return give_access_to_put_back() && complete;
}

bool MapPlan::put_back(Leaving& leaving) {
  const Stretch where = leaving.entry.mapped().where();
  // The driver may have refused to unmap what was mapped in its place.
  const auto there = leaving.mapping->first_reaching(where.offset);
  const bool vacant = there == leaving.mapping->chunks_.end() || there->first >= where.end();
  if (vacant && insist([&] { return leaving.mapping->attach(std::move(leaving.entry)); })) {
    return true;
  }
  left_out_.push_back(std::move(leaving.entry.mapped()));
  left_out_.back().access = leaving.access;
  return false;
}

bool MapPlan::give_access_to_put_back() {
  struct Back {
    Mapping* mapping;
    Stretch stretch;
    AccessSet access;
    Stretch where() const { return stretch; }
  };
  std::vector<Back> back;
  for (const Leaving& leaving : leaving_) {
    // Attaching empties the entry, so a full one was left out.
    if (!leaving.entry.empty()) continue;
    const Stretch where = leaving.mapping->find(leaving.offset)->where();
    back.push_back({leaving.mapping, where, leaving.access});
  }
  bool complete = true;
  (void)for_each_run(back, [&](const Back& first, const Back& last) -> Result<void> {
    complete &= insist([&] {
      return first.mapping->set_access(from_to(first, last), AccessSet::none(), first.access);
    });
    return {};
  });
  return complete;
}

}  // namespace cuvmm
