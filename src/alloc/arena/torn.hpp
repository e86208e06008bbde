// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "vmm/chunk_ref.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm::arena {

// Live memory that lost its chunk, because the driver refused both a change and its undo.
struct Torn {
  Size offset;
  ChunkRef chunk;               // has the contents
  std::vector<Stretch> hidden;  // free memory there
};

}  // namespace cuvmm::arena
