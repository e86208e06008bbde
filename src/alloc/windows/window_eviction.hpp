// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/eviction_set.hpp"
#include "alloc/windows/window_compactor.hpp"
#include "alloc/windows/window_table.hpp"

namespace cuvmm {

class WindowRemap;

// Evicts live memory of windows and restores it at the same addresses: chunks that pieces share,
// each mapped into many windows, and chunks that belong to one block. Takes the table's lock
// itself.
class WindowEviction final : public EvictionSource {
 public:
  WindowEviction(WindowTable& table, WindowCompactor& compactor)
      : table_(table), compactor_(compactor) {}

  void list_held(std::vector<HeldChunk>& held) const override;
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  void count_as_restored(std::span<EvictedChunk> some) override;
  void end_eviction() override;

 private:
  static void add_slots(WindowRemap& remap, const EvictedChunk& one, const ChunkRef& after);
  void note_residency(SharedChunk& shared);

  WindowTable& table_;
  WindowCompactor& compactor_;
};

}  // namespace cuvmm
