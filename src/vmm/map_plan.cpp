// SPDX-License-Identifier: Apache-2.0
// Building and validating a plan. map_commit.cpp makes a Remap of it.
#include "vmm/map_plan.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cuvmm {
namespace {

Error refusal(ErrorKind kind, const char* doing, const char* why, Size asked) {
  return {.kind = kind, .doing = doing, .subject = why, .asked = asked};
}

// Sort key of a step: its place, then the order in which steps were added.
struct Said {
  const Mapping* mapping;
  Size offset;
  std::size_t number;
  bool operator<(const Said& other) const {
    return std::tie(mapping, offset, number) < std::tie(other.mapping, other.offset, other.number);
  }
};

// Most plans are built in address order and need no sorting.
template <class Steps>
void put_in_order(Steps& steps) {
  if (std::is_sorted(steps.begin(), steps.end())) return;
  std::vector<Said> order;
  order.reserve(steps.size());
  for (const auto& step : steps) order.push_back({step.mapping, step.begin(), order.size()});
  std::sort(order.begin(), order.end());
  Steps sorted;
  sorted.reserve(steps.size());
  for (const Said& said : order) sorted.push_back(std::move(steps[said.number]));
  steps = std::move(sorted);
}

constexpr const char* unmapping = "plan to unmap";
constexpr const char* mapping_in = "plan to map";
constexpr const char* allowing = "plan to give access";

}  // namespace

void MapPlan::unmap(Mapping& mapping, Size offset) {
  unmaps_.push_back({&mapping, {offset, 0}, Extent::OneChunk});
}

void MapPlan::unmap(Mapping& mapping, Stretch stretch) {
  unmaps_.push_back({&mapping, stretch, Extent::AllWithin});
}

void MapPlan::map(Mapping& mapping, Size offset, ChunkRef chunk, AccessSet access) {
  maps_.push_back({&mapping, offset, std::move(chunk), access});
}

void MapPlan::allow(Mapping& mapping, Stretch stretch, AccessSet access) {
  allows_.push_back({&mapping, stretch, access});
}

Result<void> MapPlan::validate() {
  put_in_order(unmaps_);
  put_in_order(maps_);
  put_in_order(allows_);
  TRY(find_leaving());
  TRY(check_maps());
  return check_allows();
}

Result<void> MapPlan::find_leaving() {
  leaving_.clear();
  leaving_.reserve(unmaps_.size());
  for (const Unmap& unmap : unmaps_) {
    const Mapping& mapping = *unmap.mapping;
    Stretch stretch = unmap.stretch;
    if (!stretch.fits(mapping.size())) {
      return Error::invalid(unmapping, "beyond the mapping", stretch.size);
    }
    const bool follows = !leaving_.empty() && leaving_.back().mapping == unmap.mapping;
    if (follows && stretch.offset < leaving_.back().place->second.where().end()) {
      return refusal(ErrorKind::NotMapped, unmapping, "the same chunk twice", stretch.size);
    }
    Mapping::Iterator place = follows
                                  ? mapping.first_reaching(stretch.offset, leaving_.back().place)
                                  : mapping.first_reaching(stretch.offset);
    const auto end = mapping.chunks_.end();
    if (unmap.extent == Extent::OneChunk && place != end && place->first <= stretch.offset) {
      stretch.size = place->second.where().size;
    }
    if (place == end || place->first >= stretch.end()) {
      return refusal(ErrorKind::NotMapped, unmapping, "nothing lies there", stretch.size);
    }
    for (; place != end && place->first < stretch.end(); ++place) {
      const Stretch where = place->second.where();
      if (where.offset < stretch.offset || where.end() > stretch.end()) {
        return Error::invalid(unmapping, "part of a chunk", stretch.size);
      }
      leaving_.push_back({unmap.mapping, place, where.offset});
    }
  }
  return {};
}

bool MapPlan::is_leaving(const Mapping* mapping, Size offset) const {
  const auto found = std::lower_bound(leaving_.begin(), leaving_.end(), offset,
                                      [mapping](const Leaving& a, Size wanted) {
                                        return before(a.mapping, a.offset, mapping, wanted);
                                      });
  return found != leaving_.end() && found->mapping == mapping && found->offset == offset;
}

Result<void> MapPlan::check_maps() const {
  const Mapping* mapping = nullptr;
  Mapping::Iterator place;
  Size reached = 0;  // end of the previous planned chunk in this mapping
  for (const Map& map : maps_) {
    if (!map.chunk) return Error::invalid(mapping_in, "no chunk");
    const Stretch where{map.offset, map.chunk->size()};
    const Size granule = map.mapping->granule();
    if (!where.fits(map.mapping->size())) {
      return Error::invalid(mapping_in, "beyond the mapping", where.size);
    }
    if (!is_multiple(where.offset, granule) || !is_multiple(where.size, granule)) {
      return Error::invalid(mapping_in, "not in granules", where.size);
    }
    const bool follows = map.mapping == mapping;
    if (follows && where.offset < reached) {
      return refusal(ErrorKind::AlreadyMapped, mapping_in, "two chunks over each other",
                     where.size);
    }
    mapping = map.mapping;
    reached = where.end();
    place = follows ? mapping->first_reaching(where.offset, place)
                    : mapping->first_reaching(where.offset);
    for (auto at = place; at != mapping->chunks_.end() && at->first < where.end(); ++at) {
      if (is_leaving(mapping, at->first)) continue;
      return refusal(ErrorKind::AlreadyMapped, mapping_in, "a chunk lies there", where.size);
    }
  }
  return {};
}

Result<void> MapPlan::check_allows() const {
  const Mapping* mapping = nullptr;
  Size reached = 0;
  for (const Allow& allow : allows_) {
    const Stretch stretch = allow.stretch;
    if (stretch.size == 0) return Error::invalid(allowing, "to no bytes");
    if (!stretch.fits(allow.mapping->size())) {
      return Error::invalid(allowing, "beyond the mapping", stretch.size);
    }
    if (allow.mapping == mapping && stretch.offset < reached) {
      return Error::invalid(allowing, "to the same bytes twice", stretch.size);
    }
    mapping = allow.mapping;
    reached = stretch.offset;
    const auto end = mapping->chunks_.end();
    for (auto at = mapping->first_reaching(reached); reached < stretch.end(); ++at) {
      if (at == end || at->first > reached) {
        return refusal(ErrorKind::NotMapped, allowing, "nothing lies there", stretch.size);
      }
      const Stretch where = at->second.where();
      if (where.offset < stretch.offset || where.end() > stretch.end()) {
        return Error::invalid(allowing, "to part of a chunk", stretch.size);
      }
      if (is_leaving(mapping, where.offset)) {
        return refusal(ErrorKind::NotMapped, allowing, "the plan unmaps it", stretch.size);
      }
      reached = where.end();
    }
  }
  return {};
}

void MapPlan::clear() {
  unmaps_.clear();
  maps_.clear();
  allows_.clear();
  leaving_.clear();
}

}  // namespace cuvmm
