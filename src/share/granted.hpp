// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "share/kept_file.hpp"
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
  // One per chunk, or empty to export each chunk every time.
  std::vector<std::shared_ptr<KeptFile>> files = {};

  Result<SentFile> file_of(std::size_t chunk) const {
    if (!files.empty()) return files[chunk]->of(chunks[chunk]);
    Fd exported = TRY(chunks[chunk].export_fd());
    const int number = exported.number();
    return SentFile{.number = number, .for_this_time = std::move(exported)};
  }
  Size total() const {
    Size bytes = 0;
    for (const ChunkRef& chunk : chunks) bytes += chunk->size();
    return bytes;
  }
};

}  // namespace cuvmm::share
