// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "alloc/arena/arena_state.hpp"
#include "alloc/eviction_set.hpp"

namespace cuvmm {

// Evicts live memory of an arena and restores it at the same addresses. Tiles stay as they are.
// Takes the arena's lock itself.
class ArenaEviction final : public EvictionSource {
 public:
  explicit ArenaEviction(arena::ArenaState& state) : state_(state) {}

  void list_held(std::vector<HeldChunk>& held) const override;
  [[gnu::cold]] void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  // Nothing to do: the arena's mapping has no chunks there, which is a valid state.
  void count_as_restored(std::span<EvictedChunk> /*some*/) override {}
  void end_eviction() override;

 private:
  void follow_chunks();
  std::vector<Size> offsets_of(const EvictedChunk& one) const;

  arena::ArenaState& state_;
  // During an eviction: for the listed offset of each chunk that several granules share, its other
  // offsets.
  std::unordered_map<Size, std::vector<Size>> also_at_;
};

}  // namespace cuvmm
