// SPDX-License-Identifier: Apache-2.0
#include "spill/better_places.hpp"

#include <algorithm>
#include <unordered_map>

namespace cuvmm {
namespace {

struct UsedEarlier {
  bool operator()(const PlacedChunk& a, const PlacedChunk& b) const { return a.last < b.last; }
};

}  // namespace

void Stays::look(const std::vector<HeldChunk>& held, Moment now) {
  std::unordered_map<std::uint64_t, Moment> since;
  for (const HeldChunk& one : held) {
    if (one.holder == 0) continue;
    const auto known = since_.find(one.holder);
    since.emplace(one.holder, known != since_.end() ? known->second : now);
  }
  since_ = std::move(since);
}

Stays::Moment Stays::since(std::uint64_t holder, Moment now) const {
  const auto known = since_.find(holder);
  return known != since_.end() ? known->second : now;
}

std::vector<PlacedChunk> with_last_uses(const std::vector<HeldChunk>& held, const LastUses& uses,
                                        const Stays& stays, int device) {
  std::vector<PlacedChunk> chunks;
  std::unordered_map<CUmemGenericAllocationHandle, std::size_t> places;
  std::unordered_set<CUmemGenericAllocationHandle> staying;
  chunks.reserve(held.size());
  // A call that names a block may use all of it. The many chunks of a large block follow one
  // another.
  CUdeviceptr blocks = 0;
  Size blocks_size = 0;
  LastUses::Moment last = 0;
  for (const HeldChunk& one : held) {
    if (one.stays) staying.insert(one.chunk);
    if (one.blocks != blocks || one.blocks_size != blocks_size) {
      blocks = one.blocks;
      blocks_size = one.blocks_size;
      last = uses.last_within(blocks, blocks_size);
    }
    const auto [place, is_new] = places.emplace(one.chunk, chunks.size());
    const LastUses::Moment since = stays.since(one.holder, uses.now());
    const bool has_stayed = stays.has_stayed(one.holder, uses.now());
    if (is_new) {
      chunks.push_back(
          {one.chunk, one.size, residency(one.where, device), last, has_stayed, since});
    } else {
      PlacedChunk& known = chunks[place->second];
      known.last = std::max(known.last, last);
      known.held_since = std::max(known.held_since, since);
      known.has_stayed &= has_stayed;
    }
  }
  std::erase_if(chunks, [&](const PlacedChunk& one) { return staying.contains(one.chunk); });
  return chunks;
}

BetterPlaces find_cold_places(std::vector<PlacedChunk> chunks, LastUses::Moment now, Size wanted) {
  // Launches are sampled, so absence of uses is certain only after a while.
  constexpr LastUses::Moment cold_after = 30;
  BetterPlaces found;
  std::erase_if(chunks, [&](const PlacedChunk& one) {
    return one.residency == Residency::Far || std::max(one.last, one.held_since) + cold_after > now;
  });
  std::sort(chunks.begin(), chunks.end(), UsedEarlier{});
  for (const PlacedChunk& one : chunks) {
    if (found.out >= wanted) break;
    found.change.insert(one.chunk);
    found.going.push_back(one.size);
    found.out += one.size;
  }
  return found;
}

BetterPlaces find_places_near(const std::unordered_set<CUmemGenericAllocationHandle>& named,
                              std::vector<PlacedChunk> chunks, const PlaceBounds& bounds) {
  BetterPlaces found;
  for (const PlacedChunk& one : chunks) {
    if (one.residency != Residency::Far || !named.contains(one.chunk)) continue;
    found.change.insert(one.chunk);
    found.in += one.size;
  }
  if (found.in == 0) return {};
  std::erase_if(chunks, [&](const PlacedChunk& one) {
    return one.residency == Residency::Far || named.contains(one.chunk);
  });
  std::sort(chunks.begin(), chunks.end(), UsedEarlier{});
  for (const PlacedChunk& one : chunks) {
    if (bounds.room_near + found.out >= found.in) break;
    if (found.out + one.size > bounds.room_far) continue;
    found.change.insert(one.chunk);
    found.going.push_back(one.size);
    found.out += one.size;
  }
  return bounds.room_near + found.out >= found.in ? found : BetterPlaces{};
}

BetterPlaces find_better_places(std::vector<PlacedChunk> chunks, const PlaceBounds& bounds) {
  BetterPlaces found;
  std::erase_if(chunks, [](const PlacedChunk& one) { return !one.has_stayed; });
  const auto near = std::partition(chunks.begin(), chunks.end(), [](const PlacedChunk& one) {
    return one.residency == Residency::Far;
  });
  std::sort(chunks.begin(), near,
            [](const PlacedChunk& a, const PlacedChunk& b) { return a.last > b.last; });
  std::sort(near, chunks.end(), UsedEarlier{});
  const auto is_in_use = [&](const PlacedChunk& one) {
    return one.last != 0 && one.last + bounds.recent >= bounds.now;
  };
  Size hot = 0;
  for (auto one = chunks.begin(); one != near && is_in_use(*one); ++one) hot += one->size;
  if (hot < bounds.least) return found;

  Size room = bounds.room_near;
  const Size to_leave = hot > room ? std::min({2 * (hot - room), bounds.room_far, bounds.most}) : 0;
  for (auto one = near; one != chunks.end() && found.out < to_leave; ++one) {
    if (one->last + bounds.margin >= chunks.front().last) break;
    if (found.out + one->size > to_leave) continue;
    found.change.insert(one->chunk);
    found.going.push_back(one->size);
    found.out += one->size;
  }
  room += found.out / 2;
  for (auto one = chunks.begin(); one != near && is_in_use(*one); ++one) {
    const bool fits = found.in + one->size <= room;
    if (!fits || found.out + found.in + one->size > bounds.most) continue;
    found.change.insert(one->chunk);
    found.in += one->size;
  }
  if (found.out + found.in < bounds.least) return {};
  return found;
}

}  // namespace cuvmm
