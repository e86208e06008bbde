// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "share/message.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::share {

// What an exporter gives: chunks in a row, and the bytes of them that are meant. It refers to the
// chunks, so they live, and count, until every importer has let go.
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
