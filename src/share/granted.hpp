// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "share/message.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::share {

// An exporter's grant: a row of chunks, and the range of bytes within them. It references the
// chunks, so they stay allocated and counted until every importer has released them.
struct Granted {
  std::vector<ChunkRef> chunks;
  Size offset = 0;
  Size size = 0;
  GrantAccess access = GrantAccess::ReadWrite;
  std::uint64_t tag = 0;

  Size total() const {
    Size bytes = 0;
    for (const ChunkRef& chunk : chunks) bytes += chunk->size();
    return bytes;
  }
};

}  // namespace cuvmm::share
