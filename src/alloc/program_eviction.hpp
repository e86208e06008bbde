// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/eviction_set.hpp"
#include "alloc/program_chunks.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Takes the chunks that the program manages itself off one device, and puts others in their place,
// wherever the program had mapped them.
class ProgramEviction final : public EvictionSource, private BackingLedger {
 public:
  ProgramEviction(const Driver& driver, ProgramChunks& chunks, int device)
      : driver_(driver), chunks_(chunks), device_(device) {}

  // Placement does not move them.
  void list_held(std::vector<HeldChunk>& /*held*/) const override {}
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  void count_as_restored(std::span<EvictedChunk> /*some*/) override {}
  void end_eviction() override {}

 private:
  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override;
  void remove_backing(At at, const ChunkRef& chunk) override;

  const Driver& driver_;
  ProgramChunks& chunks_;
  const int device_;
  std::vector<std::shared_ptr<ProgramChunk>> leaving_;  // EvictedChunk::index counts them
};

}  // namespace cuvmm
