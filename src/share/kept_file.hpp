// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "share/fork_closed.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm::share {

// A chunk's descriptor as it is sent: one that is kept for the next time, or one for this time.
struct SentFile {
  int number = -1;
  Fd for_this_time;
};

// The descriptor of a chunk, exported at the first grant and kept for those that follow, since the
// driver takes longer to export memory it has exported before than all the rest of a grant takes.
// Holds the memory as the chunk does, so it goes with the last who grants the chunk. Any thread may
// send at any time.
class KeptFile {
 public:
  // A process may have only so many descriptors: beyond these a chunk is exported each time.
  static constexpr int most_kept = 128;

  KeptFile() = default;
  ~KeptFile();
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // `chunk` is the same each time.
  Result<SentFile> of(const ChunkRef& chunk);

 private:
  std::atomic<const ForkClosedFd*> kept_{nullptr};  // set once
};

}  // namespace cuvmm::share
