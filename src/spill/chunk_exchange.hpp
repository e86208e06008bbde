// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "spill/quiesce.hpp"
#include "vmm/copy_stream.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Replaces chunks of the program by others with the same contents, at the same addresses: a chunk
// that was created without a handle type by an exportable one, and a spilled chunk by one on its
// device. The program's handles refer to the new chunks from then on. The program stands still
// meanwhile.
//
// Replaces one chunk at a time, so it needs memory for only one more. After an Error, the chunks
// already replaced stay replaced, and the rest is as it was. TimedOut if calls and work in flight
// do not finish in time.
//
// One call at a time, and not during a pause. Must not be called by a thread that holds locks of
// ours or is inside one of the program's calls.
class ChunkExchange final : private BackingLedger {
 public:
  using Place = ProgramChunks::Place;
  // One place of each chunk.
  using Places = std::function<std::vector<Place>()>;

  // The parts must outlive this object.
  explicit ChunkExchange(const ProgramParts& program) : program_(program) {}

  // Covers the contiguous mappings from the one that contains the address onwards.
  Result<void> make_exportable(CUdeviceptr address, Duration within);
  // `spilled` is called once the program stands still: the set may have changed by then.
  Result<void> bring_in(const Places& spilled, Duration within);

 private:
  // Returns the properties of the chunk that takes this one's place; nullopt if it may stay.
  using Wanted = std::function<std::optional<CUmemAllocationProp>(const ProgramChunk&)>;

  Result<void> while_still(Duration within, const std::function<Result<void>()>& exchange) const;
  Result<void> exchange_all(const std::vector<Place>& places, const Wanted& wanted);
  // Call with the context current whose device makes the copy.
  Result<void> exchange(const Place& place, const CUmemAllocationProp& wanted,
                        const std::shared_ptr<CopyStream>& stream);
  Result<ChunkRef> create(const ProgramChunk& chunk, const CUmemAllocationProp& wanted) const;
  Result<void> copy(const ChunkRef& from, const ChunkRef& to,
                    const std::shared_ptr<CopyStream>& stream) const;
  Result<void> commit(Remap& remap);

  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override;
  void remove_backing(At at, const ChunkRef& chunk) override;

  const ProgramParts& program_;
};

}  // namespace cuvmm
