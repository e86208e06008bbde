// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/sharing_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cuvmm::arena {
namespace {

// How many groups of chunks to look at for one granule.
constexpr std::size_t looks_a_granule = 4096;

}  // namespace

SharingPlan::Index SharingPlan::add_chunk(Size granules) {
  Chunk& chunk = chunks_.emplace_back();
  chunk.size = granules;
  chunk.first = chunk.end = static_cast<Index>(granules_.size());
  return static_cast<Index>(chunks_.size() - 1);
}

SharingPlan::Index SharingPlan::add_granule(Index chunk, const LiveParts& live) {
  const auto index = static_cast<Index>(granules_.size());
  granules_.push_back({live, none});
  chunks_[chunk].live.add(live);
  chunks_[chunk].end = index + 1;
  return index;
}

SharingPlan::Index SharingPlan::add_spare() {
  const Index chunk = add_chunk(1);
  chunks_[chunk].is_spare = true;
  spares_.push_back(chunk);
  return chunk;
}

SharingPlan::Index SharingPlan::group_with(const LiveParts& live) {
  const auto [found, is_new] = group_of_.try_emplace(live, static_cast<Index>(groups_.size()));
  if (is_new) groups_.push_back({live, {}, false});
  return found->second;
}

void SharingPlan::file(Index chunk) {
  const Index index = group_with(chunks_[chunk].live);
  chunks_[chunk].group = index;
  Group& group = groups_[index];
  group.chunks.push_back(chunk);
  if (std::exchange(group.is_filed, true)) return;
  by_count_[static_cast<std::size_t>(group.live.count())].push_back(index);
}

SharingPlan::Index SharingPlan::last_chunk_of(Index group) {
  std::vector<Index>& listed = groups_[group].chunks;
  while (!listed.empty()) {
    const Chunk& chunk = chunks_[listed.back()];
    if (!chunk.is_emptied && chunk.group == group) return listed.back();
    listed.pop_back();
  }
  return none;
}

Size SharingPlan::empty(const Bounds& bounds) {
  std::vector<std::pair<int, Index>> order;
  for (Index chunk = 0; chunk < chunks_.size(); ++chunk) {
    const Chunk& one = chunks_[chunk];
    if (one.is_spare) continue;
    int live = 0;
    for (Index granule = one.first; granule < one.end; ++granule) {
      live += granules_[granule].live.count();
    }
    order.emplace_back(live, chunk);
    if (one.size == 1) file(chunk);
  }
  std::sort(order.begin(), order.end(), [this](const auto& a, const auto& b) {
    const Size size_a = chunks_[a.second].size;
    const Size size_b = chunks_[b.second].size;
    return size_a != size_b ? size_a < size_b : a < b;
  });
  Size gained = 0;
  for (const auto& [live, chunk] : order) {
    if (gained >= bounds.gain || moves_ >= bounds.moves) break;
    gained += empty_one(chunk, live);
  }
  return gained;
}

// Uses as many spares as the chunk has granules only if at least one granule's worth of it is free.
Size SharingPlan::empty_one(Index chunk, int live_parts) {
  const Chunk from = chunks_[chunk];
  if (from.received != 0) return 0;
  const Size free_parts = from.size * LiveParts::parts - static_cast<Size>(live_parts);
  const Size most_spares = free_parts >= LiveParts::parts ? from.size : from.size - 1;
  Size spares = 0;
  Index granule = from.first;
  for (; granule < from.end; ++granule) {
    const LiveParts& live = granules_[granule].live;
    if (live.is_empty()) continue;
    Index to = find_goal(live);
    if (to == none && spares < most_spares) {
      to = take_spare();
      if (to == none) {
        lacks_spares_ = true;
      } else {
        ++spares;
      }
    }
    if (to == none) break;
    put(granule, to);
  }
  if (granule < from.end) {
    while (granule-- > from.first) put_back(granule);
    return 0;
  }
  moves_ += from.end - from.first;
  chunks_[chunk].is_emptied = true;
  emptied_.push_back(chunk);
  return from.size - spares;
}

SharingPlan::Index SharingPlan::take_spare() {
  while (!spares_.empty()) {
    const Index spare = spares_.back();
    spares_.pop_back();
    if (chunks_[spare].received == 0) return spare;
  }
  return none;
}

// The fullest one, so that others can be emptied. It is never the granule's own, which overlaps it.
SharingPlan::Index SharingPlan::find_goal(const LiveParts& live) {
  std::size_t looks = std::min(looks_a_granule, looks_left_);
  if (looks == 0) return none;
  const auto room = static_cast<std::size_t>(static_cast<int>(LiveParts::parts) - live.count());
  for (std::size_t count = room + 1; count-- > 0;) {
    std::vector<Index>& filed = by_count_[count];
    for (std::size_t i = 0; i < filed.size();) {
      const Index chunk = last_chunk_of(filed[i]);
      Group& group = groups_[filed[i]];
      if (chunk == none) {
        group.is_filed = false;
        filed[i] = filed.back();
        filed.pop_back();
        continue;
      }
      if (!group.live.overlaps(live)) return chunk;
      --looks_left_;
      if (--looks == 0) return none;
      ++i;
    }
  }
  return none;
}

void SharingPlan::put(Index granule, Index chunk) {
  granules_[granule].goal = chunk;
  chunks_[chunk].live.add(granules_[granule].live);
  ++chunks_[chunk].received;
  file(chunk);
}

void SharingPlan::put_back(Index granule) {
  const Index chunk = std::exchange(granules_[granule].goal, none);
  if (chunk == none) return;
  chunks_[chunk].live.take(granules_[granule].live);
  const bool is_unused_spare = --chunks_[chunk].received == 0 && chunks_[chunk].is_spare;
  if (is_unused_spare) {
    spares_.push_back(chunk);
  } else {
    file(chunk);
  }
}

}  // namespace cuvmm::arena
