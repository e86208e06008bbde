// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/sharing_plan.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::arena {
namespace {

// How many groups of chunks to look at for one granule, and for one that found nothing in its
// window.
constexpr std::size_t looks_a_granule = 4096;
constexpr std::size_t looks_beyond_the_window = 1024;

}  // namespace

SharingPlan::SharingPlan() {
  LiveParts all;
  all.mark({0, LiveParts::parts}, LiveParts::parts);
  (void)window_with(all);
}

SharingPlan::Index SharingPlan::window_with(const LiveParts& parts) {
  const auto [found, is_new] = window_of_.try_emplace(parts, static_cast<Index>(windows_.size()));
  if (is_new) windows_.push_back({parts, parts.count()});
  return found->second;
}

std::vector<SharingPlan::Index> SharingPlan::add_layout(const std::vector<LiveParts>& windows) {
  std::vector<Index> numbers;
  numbers.reserve(windows.size());
  for (const LiveParts& parts : windows) numbers.push_back(window_with(parts));
  const auto& known = windows_[numbers.front()].layouts;
  const auto is_same = [&](Index layout) { return layouts_[layout] == numbers; };
  if (std::any_of(known.begin(), known.end(), is_same)) return numbers;
  for (const Index window : numbers) {
    windows_[window].layouts.push_back(static_cast<Index>(layouts_.size()));
  }
  layouts_.push_back(numbers);
  return numbers;
}

SharingPlan::Index SharingPlan::add_chunk(Size granules) {
  chunks_.emplace_back().size = granules;
  return static_cast<Index>(chunks_.size() - 1);
}

SharingPlan::Index SharingPlan::add_granule(Index chunk, const LiveParts& live, Index window) {
  const auto index = static_cast<Index>(granules_.size());
  if (!live.is_within(windows_[window].parts)) window = whole;
  granules_.push_back({live, chunk, window, none, chunks_[chunk].granules});
  chunks_[chunk].live.add(live);
  chunks_[chunk].granules = index;
  return index;
}

SharingPlan::Index SharingPlan::add_spare() {
  const Index chunk = add_chunk(1);
  chunks_[chunk].is_spare = true;
  spares_.push_back(chunk);
  return chunk;
}

int SharingPlan::live_parts(const Chunk& chunk) const {
  int live = 0;
  for (Index i = chunk.granules; i != none; i = granules_[i].next) {
    live += granules_[i].live.count();
  }
  return live;
}

void SharingPlan::file(Index chunk, const LiveParts& changed) {
  ++filings_;
  file_in(whole, chunk, changed);
  for (Index i = chunks_[chunk].granules; i != none; i = granules_[i].next) {
    for (const Index layout : windows_[granules_[i].window].layouts) {
      for (const Index window : layouts_[layout]) file_in(window, chunk, changed);
    }
  }
}

void SharingPlan::file_in(Index window, Index chunk, const LiveParts& changed) {
  const LiveParts& parts = windows_[window].parts;
  const bool is_done = std::exchange(windows_[window].last_filing, filings_) == filings_;
  if (is_done || !changed.overlaps(parts)) return;
  const LiveParts live = chunks_[chunk].live.within(parts);
  const auto [found, is_new] =
      group_of_.try_emplace({live, window}, static_cast<Index>(groups_.size()));
  if (is_new) groups_.push_back({live, window});
  Group& group = groups_[found->second];
  group.chunks.push_back(chunk);
  if (std::exchange(group.is_filed, true)) return;
  group.next = std::exchange(groups_with(window, live.count()), found->second);
}

SharingPlan::Index SharingPlan::last_chunk_of(Group& group) {
  const LiveParts& parts = windows_[group.window].parts;
  while (!group.chunks.empty()) {
    const Chunk& chunk = chunks_[group.chunks.back()];
    const bool is_there = !chunk.is_emptied && !is_unused(chunk);
    if (is_there && chunk.live.within(parts) == group.live) return group.chunks.back();
    group.chunks.pop_back();
  }
  return none;
}

// Returns the chunks that may be emptied: small ones first, and of those the ones with the least in
// them. They are filed in the same order, so that the fullest ones are found first.
std::vector<SharingPlan::Index> SharingPlan::file_all() {
  groups_.clear();
  group_of_.clear();
  std::size_t counts = 0;
  for (Window& window : windows_) {
    window.groups = counts;
    counts += static_cast<std::size_t>(window.size) + 1;
  }
  by_count_.assign(counts, none);
  std::vector<std::pair<Size, Index>> order;
  for (Index index = 0; index < chunks_.size(); ++index) {
    const Chunk& chunk = chunks_[index];
    if (chunk.is_spare || chunk.is_emptied) continue;
    const Size key = chunk.size << 32 | static_cast<Size>(live_parts(chunk));
    order.emplace_back(key, index);
  }
  std::sort(order.begin(), order.end());
  std::vector<Index> sorted;
  for (const auto& [key, chunk] : order) {
    sorted.push_back(chunk);
    if (chunks_[chunk].size == 1) file(chunk, windows_[whole].parts);
  }
  return sorted;
}

Size SharingPlan::empty(const Bounds& bounds) {
  Size gained = 0;
  for (const Index chunk : file_all()) {
    if (gained >= bounds.gain || moved_.size() >= bounds.moves) break;
    gained += empty_one(chunk);
  }
  return gained;
}

// Uses as many spares as the chunk has granules only if at least one granule's worth of it is free.
Size SharingPlan::empty_one(Index index) {
  const Chunk& from = chunks_[index];
  if (from.arrivals != 0) return 0;
  const Size free_parts = from.size * LiveParts::parts - static_cast<Size>(live_parts(from));
  const Size most_spares = free_parts >= LiveParts::parts ? from.size : from.size - 1;
  const std::size_t moved_before = moved_.size();
  Size spares = 0;
  bool all_fit = true;
  for (Index granule = from.granules; granule != none; granule = granules_[granule].next) {
    if (granules_[granule].live.is_empty()) continue;
    Index to = find_goal(granules_[granule]);
    if (to == none && spares < most_spares) {
      to = take_spare();
      if (to == none) {
        lacks_spares_ = true;
      } else {
        ++spares;
      }
    }
    all_fit = to != none;
    if (!all_fit) break;
    put(granule, to);
  }
  if (!all_fit) {
    while (moved_.size() > moved_before) put_back(moved_.back());
    return 0;
  }
  chunks_[index].is_emptied = true;
  emptied_.push_back(index);
  return from.size - spares;
}

std::size_t SharingPlan::consolidate(std::size_t most_moves) {
  for (const Index index : file_all()) {
    if (chunks_[index].size != 1) continue;
    bool stays = false;  // one of its granules
    for (Index granule = chunks_[index].granules; granule != none;
         granule = granules_[granule].next) {
      const bool is_last = granules_[granule].next == none;
      if ((is_last && !stays) || moved_.size() >= most_moves) break;
      const Granule& one = granules_[granule];
      const LiveParts& window = windows_[one.window].parts;
      const Chunk& from = chunks_[index];
      const Index to = from.received.overlaps(window) ? none : find_goal(one);
      const int gone = from.gone.within(window).count() + one.live.count();
      const int left = from.live.within(window).count() - gone;
      if (to == none || chunks_[to].live.within(window).count() <= left) {
        stays = true;
        continue;
      }
      put(granule, to);
      chunks_[index].gone.add(one.live);
    }
  }
  return moved_.size();
}

void SharingPlan::settle() {
  for (Chunk& chunk : chunks_) {
    chunk.live = chunk.received = chunk.gone = {};
    chunk.arrivals = 0;
    chunk.granules = none;
  }
  for (Index index = 0; index < granules_.size(); ++index) {
    Granule& granule = granules_[index];
    if (granule.goal != none) granule.home = std::exchange(granule.goal, none);
    Chunk& chunk = chunks_[granule.home];
    chunk.is_spare = false;
    chunk.live.add(granule.live);
    granule.next = std::exchange(chunk.granules, index);
  }
  moved_.clear();
  emptied_.clear();
}

SharingPlan::Index SharingPlan::take_spare() {
  while (!spares_.empty()) {
    const Index spare = spares_.back();
    spares_.pop_back();
    if (is_unused(chunks_[spare])) return spare;
  }
  return none;
}

// Finds the chunk that is fullest in the granule's window, so that emptier ones can be emptied. It
// is never the granule's own, which overlaps it.
SharingPlan::Index SharingPlan::find_goal(const Granule& granule) {
  std::size_t most = looks_a_granule;
  if (granule.window != whole) {
    std::size_t looks = looks_a_granule;
    const Index goal = find_goal(granule.live, granule.window, looks);
    if (goal != none) return goal;
    most = looks_beyond_the_window;
  }
  std::size_t looks = std::min(most, looks_left_);
  looks_left_ -= looks;
  const Index goal = find_goal(granule.live, whole, looks);
  looks_left_ += looks;
  return goal;
}

SharingPlan::Index SharingPlan::find_goal(const LiveParts& live, Index window, std::size_t& looks) {
  for (int count = windows_[window].size - live.count(); count >= 0; --count) {
    for (Index* at = &groups_with(window, count); *at != none;) {
      Group& group = groups_[*at];
      const Index chunk = last_chunk_of(group);
      if (chunk == none) {
        group.is_filed = false;
        *at = group.next;
        continue;
      }
      if (looks == 0) return none;
      --looks;
      if (!group.live.overlaps(live)) return chunk;
      at = &group.next;
    }
  }
  return none;
}

void SharingPlan::put(Index granule, Index chunk) {
  const LiveParts& live = granules_[granule].live;
  const bool is_new = is_unused(chunks_[chunk]);
  granules_[granule].goal = chunk;
  chunks_[chunk].live.add(live);
  chunks_[chunk].received.add(live);
  ++chunks_[chunk].arrivals;
  moved_.push_back(granule);
  file(chunk, is_new ? windows_[whole].parts : live);
}

// The granule is the last one that was put anywhere.
void SharingPlan::put_back(Index granule) {
  moved_.pop_back();
  const Index chunk = std::exchange(granules_[granule].goal, none);
  const LiveParts& live = granules_[granule].live;
  chunks_[chunk].live.take(live);
  chunks_[chunk].received.take(live);
  --chunks_[chunk].arrivals;
  if (is_unused(chunks_[chunk])) {
    spares_.push_back(chunk);
  } else {
    file(chunk, live);
  }
}

}  // namespace cuvmm::arena
