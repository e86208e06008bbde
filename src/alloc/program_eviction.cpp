// SPDX-License-Identifier: Apache-2.0
#include "alloc/program_eviction.hpp"

#include <algorithm>

namespace cuvmm {

void ProgramEviction::begin_eviction(EvictionSet& evicted) {
  leaving_ = chunks_.chunks_on(device_);
  evicted.owners.push_back(this);
  for (std::size_t i = 0; i < leaving_.size(); ++i) {
    const ProgramChunk& chunk = *leaving_[i];
    if (!wants_(chunk)) continue;
    const auto places = chunks_.places_of(chunk);
    const auto open = std::find_if(places.begin(), places.end(),
                                   [&](const Place& place) { return place.is_open_to(device_); });
    const Location lies = chunk.lies_on(device_);
    if (chunk.stays != nullptr) {
      evicted.exclude(chunk.size, lies, chunk.stays);
    } else if (places.empty()) {
      evicted.exclude(chunk.size, lies, "the program has created it and not mapped it");
    } else if (open == places.end()) {
      evicted.exclude(chunk.size, lies, "the program has mapped it and not made it accessible");
    } else {
      EvictedChunk& one = evicted.chunks.emplace_back();
      one.of = this;
      one.address = open->address;
      one.size = chunk.size;
      one.home = Location::device(device_);
      one.properties = &chunk.properties;
      // A chunk on a neighbour returns there: its own device may have no room.
      if (chunk.is_far() && chunk.moved->location().is_device()) {
        one.home = chunk.moved->location();
        one.properties = nullptr;
      }
      one.index = i;
    }
  }
}

void ProgramEviction::begin_moving(EvictionSet& evicted) {
  const std::size_t first = evicted.chunks.size();
  begin_eviction(evicted);
  std::size_t kept = first;
  for (std::size_t i = first; i < evicted.chunks.size(); ++i) {
    EvictedChunk& one = evicted.chunks[i];
    ProgramChunk& chunk = *leaving_[one.index];
    Result<ChunkRef> taken = chunks_.take_over(chunk, one.address);
    if (!taken.ok()) continue;
    one.chunk = std::move(taken).value();
    one.home = Location::device(device_);
    one.properties = &chunk.properties;
    std::swap(evicted.chunks[kept++], one);
  }
  evicted.chunks.resize(kept);
}

Result<void> ProgramEviction::take_out(EvictedChunk& one) {
  ProgramChunk& chunk = *leaving_[one.index];
  // If the chunk was never taken over, `one.chunk` is a replacement that put_back() did not need.
  if (!one.chunk || !chunk.is_taken_over) {
    one.chunk = TRY(chunks_.take_over(chunk, one.address));
  }
  Remap remap{driver_};
  for (const Place& place : chunks_.places_of(chunk)) {
    if (place.is_mapped) remap.add(place.address, {one.chunk, place.access_now}, {});
  }
  TRY(remap.commit(*this));
  chunks_.left(chunk);
  one.chunk = {};
  return {};
}

// Access is set together where the program did so: the driver may refuse to set it across the
// boundaries of reservations. Chunks come in the order of the addresses at which they are accessed,
// so aliases are mapped after all of them.
Result<void> ProgramEviction::put_back(std::span<EvictedChunk> some) {
  Remap remap{driver_};
  remap.reserve(some.size());
  for (const bool aliases : {false, true}) {
    for (const EvictedChunk& one : some) {
      for (const Place& place : chunks_.places_of(*leaving_[one.index])) {
        const bool is_complete = place.is_mapped && place.access_now == place.access;
        if (is_complete || (place.address != one.address) != aliases) continue;
        if (!place.continues) remap.separate();
        const Backing now{place.is_mapped ? one.chunk : ChunkRef{}, place.access_now};
        remap.add(place.address, now, {one.chunk, place.access});
      }
    }
  }
  TRY(remap.commit(*this));
  for (const EvictedChunk& one : some) {
    ProgramChunk& chunk = *leaving_[one.index];
    // One that the driver refused to hand over has never left.
    if (chunk.is_taken_over) chunks_.came_back(chunk, one.chunk);
  }
  return {};
}

void ProgramEviction::set_backing(At at, const ChunkRef& /*chunk*/, const AccessSet& access) {
  chunks_.set_backing(at.address, true, access);
}

void ProgramEviction::remove_backing(At at, const ChunkRef& /*chunk*/) {
  chunks_.set_backing(at.address, false, AccessSet::none());
}

}  // namespace cuvmm
