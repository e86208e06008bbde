// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/sharing_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cuvmm::arena {
namespace {

// How many chunks to look at for one granule.
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

void SharingPlan::file(Index chunk) {
  Chunk& filed = chunks_[chunk];
  filed.count = filed.live.count();
  by_count_[static_cast<std::size_t>(filed.count)].push_back(chunk);
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
    gained += empty_one(chunk);
  }
  return gained;
}

Size SharingPlan::empty_one(Index chunk) {
  const Chunk from = chunks_[chunk];
  if (from.received != 0) return 0;
  Size spares = 0;
  Index granule = from.first;
  for (; granule < from.end; ++granule) {
    const LiveParts& live = granules_[granule].live;
    if (live.is_empty()) continue;
    Index to = find_goal(live, chunk);
    if (to == none && from.size > spares + 1) {
      to = take_spare();
      if (to != none) ++spares;
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

// The fullest one, so that others can be emptied.
SharingPlan::Index SharingPlan::find_goal(const LiveParts& live, Index from) {
  std::size_t looks = std::min(looks_a_granule, looks_left_);
  if (looks == 0) return none;
  const auto room = static_cast<std::size_t>(static_cast<int>(LiveParts::parts) - live.count());
  for (std::size_t count = room + 1; count-- > 0;) {
    std::vector<Index>& listed = by_count_[count];
    for (std::size_t i = 0; i < listed.size();) {
      const Index index = listed[i];
      const Chunk& chunk = chunks_[index];
      if (chunk.is_emptied || static_cast<std::size_t>(chunk.count) != count) {
        listed[i] = listed.back();
        listed.pop_back();
        continue;
      }
      if (index != from && !chunk.live.overlaps(live)) return index;
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
