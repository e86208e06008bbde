// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "alloc/program_chunks.hpp"

namespace cuvmm {

// Creates the chunks that the program asks for with cuMemCreate: within the limit and the lease of
// their device, for which cuvmm reclaims memory as for an allocation of its own, and then spilled
// if they may be. Thread-safe.
class ProgramCreation {
 public:
  using Handle = ProgramChunks::Handle;
  // Makes the program's call; may be called several times.
  using CallDriver = std::function<CUresult(Handle*)>;

  // All must outlive this object.
  ProgramCreation(const Driver& driver, Memory& memory, ProgramChunks& chunks)
      : driver_(driver), memory_(memory), chunks_(chunks) {}

  // The answer to the program, which gets a handle on success.
  CUresult create(Handle* chunk, Size size, const CUmemAllocationProp& properties,
                  const CallDriver& call_driver);

 private:
  [[gnu::cold]] CUresult answer_if_there_were_room(Size size, const CUmemAllocationProp& properties,
                                                   const CallDriver& call_driver) const;

  const Driver& driver_;
  Memory& memory_;
  ProgramChunks& chunks_;
};

}  // namespace cuvmm
