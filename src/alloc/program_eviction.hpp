// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "alloc/eviction_set.hpp"
#include "alloc/program_chunks.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Takes the chunks that the program manages itself off one device, and puts others in their place,
// wherever the program had mapped them.
class ProgramEviction final : public EvictionSource, private BackingLedger {
 public:
  // `wants` selects the chunks to evict.
  using Wants = std::function<bool(const ProgramChunk&)>;
  ProgramEviction(
      const Driver& driver, ProgramChunks& chunks, int device,
      Wants wants = [](const ProgramChunk&) { return true; })
      : driver_(driver), chunks_(chunks), device_(device), wants_(std::move(wants)) {}

  void list_held(std::vector<HeldChunk>& held) const override { chunks_.list_held(device_, held); }
  void begin_eviction(EvictionSet& evicted) override;
  // The same for moving chunks to other places, and back to their device: lists each with the chunk
  // that backs it. Leaves out those that the driver does not hand over.
  void begin_moving(EvictionSet& evicted);
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  void count_as_restored(std::span<EvictedChunk> /*some*/) override {}
  void end_eviction() override { leaving_.clear(); }

 private:
  using Place = ProgramChunks::Place;

  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override;
  void remove_backing(At at, const ChunkRef& chunk) override;

  const Driver& driver_;
  ProgramChunks& chunks_;
  const int device_;
  const Wants wants_;
  std::vector<std::shared_ptr<ProgramChunk>> leaving_;  // EvictedChunk::index counts them
};

}  // namespace cuvmm
