// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "share/fork_closed.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::share {

// A chunk's descriptor to send: either the cached one, or one exported just for this message.
struct SentFile {
  int number = -1;
  Fd for_this_time;
};

// The cached descriptor of a chunk, exported at the first grant and reused by later ones, since the
// driver takes longer to re-export memory than the rest of a grant takes. The descriptor keeps the
// memory allocated, as the chunk does, so it lives only as long as someone still grants the chunk.
// Thread-safe.
class KeptFile {
 public:
  // Descriptors are limited per process; beyond this many, chunks are exported each time.
  static constexpr int most_kept = 128;

  KeptFile() = default;
  ~KeptFile();
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // `chunk` must be the same in every call.
  Result<SentFile> of(const ChunkRef& chunk);

 private:
  std::atomic<const ForkClosedFd*> kept_{nullptr};  // set once
};

}  // namespace cuvmm::share
