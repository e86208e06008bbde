// SPDX-License-Identifier: Apache-2.0
// A pool's statistics and consistency checks.
#include <algorithm>
#include <set>

#include "pool/elastic_pool.hpp"

namespace cuvmm {

// The bytes lie at the places as the pool's memory does, which is exact for a pool with one place.
void ElasticPool::count_requested() {
  const FreeBytes& unallocated = bytes_.unallocated();
  const auto allocated = static_cast<double>(unallocated.capacity() - unallocated.free_bytes());
  for (std::size_t i = 0; i < requested_at_.size(); ++i) {
    const double share =
        physical_ == 0 ? 0 : static_cast<double>(physical_at_[i]) / static_cast<double>(physical_);
    requested_at_[i].set(static_cast<Size>(share * allocated));
  }
}

void ElasticPool::recount() {
  const Size before = physical_;
  physical_ = 0;
  std::fill(physical_at_.begin(), physical_at_.end(), 0);
  std::set<ChunkRef> counted;
  const auto count = [&](const MappedChunk& mapped) {
    if (counted.insert(mapped.chunk).second) hold(mapped.chunk);
  };
  ground_->mapping.for_each(count);
  for (const MappedChunk& parked : parked_) count(parked);
  if (quota_ != nullptr && before > physical_) quota_->give_back(before - physical_);
  count_requested();
  if (state_ != State::Active) return;
  for (const Stretch& taken : bytes_.unallocated().taken_in({0, bytes_.unallocated().capacity()})) {
    if (!ground_->mapping.covers(taken)) is_damaged_ = true;
  }
  ground_->mapping.for_each([&](const MappedChunk& mapped) {
    if (bytes_.unallocated().is_free(mapped.where())) is_damaged_ = true;
  });
  if (!is_damaged_) return;
  // Rebuilds the sharing from the mapping.
  bytes_.share_nothing();
  std::map<ChunkRef, Size> first;
  ground_->mapping.for_each([&](const MappedChunk& mapped) {
    const auto [known, is_new] = first.emplace(mapped.chunk, mapped.offset / granule());
    if (!is_new) bytes_.join(mapped.offset / granule(), known->second);
  });
}

ElasticStats ElasticPool::stats() const {
  const Holding holding{lock_};
  return {.capacity = bytes_.unallocated().capacity(),
          .allocated = bytes_.unallocated().capacity() - bytes_.unallocated().free_bytes(),
          .physical = physical_,
          .mapped_granules = ground_->mapping.chunk_count(),
          .free = bytes_.unallocated().free_bytes(),
          .largest_free = bytes_.available().largest(),
          .physical_at = physical_at_};
}

InvariantViolation ElasticPool::violation() const {
  const Holding holding{lock_};
  if (InvariantViolation found = bytes_.violation()) return found;
  if (InvariantViolation found = ground_->mapping.violation()) return found;
  std::set<ChunkRef> chunks;
  InvariantViolation wrong;
  ground_->mapping.for_each([&](const MappedChunk& mapped) {
    chunks.insert(mapped.chunk);
    if (is_damaged_) return;
    if (bytes_.unallocated().is_free(of_granule(mapped.offset / granule())))
      wrong = "memory where nothing is allocated";
    for (const Size other : bytes_.shared().sharing(mapped.offset / granule())) {
      const MappedChunk* const theirs = ground_->mapping.find(other * granule());
      if (theirs == nullptr || !(theirs->chunk == mapped.chunk)) wrong = "shared chunks differ";
    }
  });
  for (const MappedChunk& parked : parked_) chunks.insert(parked.chunk);
  if (wrong) return "elastic pool: " + *wrong;
  if (chunks.size() * granule() != physical_)
    return "elastic pool: physical memory is counted wrongly";
  Size at_places = 0;
  for (const Size bytes : physical_at_) at_places += bytes;
  if (at_places != physical_) return "elastic pool: places do not add up";
  if (state_ != State::Active || is_damaged_) return {};
  for (const Stretch& taken : bytes_.unallocated().taken_in({0, bytes_.unallocated().capacity()})) {
    if (!without_memory(granules_of(taken)).empty())
      return "elastic pool: allocated without memory";
  }
  const auto all_taken = [&](const std::map<Size, Size>& marks) {
    return std::all_of(marks.begin(), marks.end(), [&](const auto& mark) {
      return bytes_.unallocated().is_taken({mark.first, mark.second});
    });
  };
  if (!all_taken(movable_) || !all_taken(evictable_)) return "elastic pool: a mark on free bytes";
  return {};
}

}  // namespace cuvmm
