// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fork_closed.hpp"
#include "vmm/chunk.hpp"

namespace cuvmm {

// A chunk's descriptor to send: either the kept one, or one exported just for this message.
struct SentFile {
  int number = -1;
  ForkClosedFd for_this_time;
};

// The descriptor of an exported chunk, kept for all who import it, since the driver takes about as
// long to export memory as to import it. It keeps the memory allocated, as the chunk's handle does,
// so it is closed before the chunk is released. Thread-safe, except for close().
class KeptFile {
 public:
  // Of those that a process may open, at most an eighth are kept, and no more than this many. Other
  // chunks are exported each time.
  static constexpr int most_kept = 128;

  KeptFile() = default;
  ~KeptFile() { close(); }
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // `chunk` must be the same in every call. False if there is no room for another descriptor.
  Result<bool> keep(const Chunk& chunk);
  Result<SentFile> of(const Chunk& chunk);
  void close();

 private:
  static constexpr std::int8_t none = -1;

  std::atomic<std::int8_t> place_{none};  // among those of the process
};
static_assert(sizeof(KeptFile) == 1, "every chunk has one, and few use it");

}  // namespace cuvmm
