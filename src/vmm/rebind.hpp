// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "vmm/mapping.hpp"

namespace cuvmm {

enum class Contents : std::uint8_t { Discard, Keep };

// What copies contents: a stream, which outlives whatever is owed to the driver (give_back.hpp),
// and the device of its context, which must be current.
struct CopyBy {
  CUstream stream = nullptr;
  int device = 0;
};

// Puts other chunks behind a stretch, whose addresses and rights stay as they are. The chunks are
// given in order, as many bytes as the stretch has; their sizes may differ from those before. A
// chunk that lies at its place already is left alone. Moves, compaction, resizing and spilling are
// all this.
//
// Contents::Keep maps the new chunks at a second place, copies, and waits for the copy before the
// old mapping goes. The chunks before are untouched until everything has succeeded, so that after
// an Error they lie there as they were; the new ones may then hold anything. Where the driver would
// not even wait for the copy, the Error says so, and it is settle() that waits: until it returns 0
// the copy may read the stretch.
//
// The caller guarantees that no work reads or writes the stretch meanwhile: unmapping is not
// ordered with streams and waits for nothing, and what is written after the copy is lost. In a
// thread that captures, the mode must be relaxed.
Result<void> rebind(Mapping& mapping, Stretch stretch, std::vector<ChunkRef> chunks,
                    Contents contents, CopyBy copy = {});

}  // namespace cuvmm
