// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "spill/standstill.hpp"
#include "vmm/copy_stream.hpp"
#include "vmm/remap.hpp"

namespace cuvmm {

// Exchanges chunks that the program created without a handle type for exportable ones with the same
// contents, at the same addresses. The program's handles refer to the new chunks from then on.
//
// One call at a time, and not during a pause. Must not be called by a thread that holds locks of
// ours or is inside one of the program's calls.
class ExportableExchange final : private BackingLedger {
 public:
  // The parts must outlive this object.
  explicit ExportableExchange(const ProgramParts& program) : program_(program) {}

  // Everything that is mapped without a gap from the mapping that contains the address on. The
  // program stands still meanwhile. Exchanges one chunk after another, so it needs memory for one
  // more; after an Error, those already exchanged stay so, and the rest is as it was. TimedOut if
  // calls and work in flight do not finish in time.
  Result<void> make_exportable(CUdeviceptr address, Duration within);

 private:
  using Place = ProgramChunks::Place;

  Result<void> exchange_all(CUdeviceptr address);
  // In the context whose device makes the copy.
  Result<void> exchange(const Place& place, const std::shared_ptr<CopyStream>& stream);
  Result<ChunkRef> create(const ProgramChunk& chunk, const CUmemAllocationProp& wanted) const;
  Result<void> copy(const ChunkRef& from, const ChunkRef& to,
                    const std::shared_ptr<CopyStream>& stream) const;
  Result<void> commit(Remap& remap);

  void set_backing(At at, const ChunkRef& chunk, const AccessSet& access) override;
  void remove_backing(At at, const ChunkRef& chunk) override;

  const ProgramParts& program_;
};

}  // namespace cuvmm
