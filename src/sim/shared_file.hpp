// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "sim/chunk.hpp"

namespace cuvmm::sim {

// A chunk's own file as another process opens it: through the owner's descriptor, which /proc shows
// to processes of the same user. The inode tells whether the descriptor still refers to the same
// file.
struct SharedFile {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
  std::uint64_t inode = 0;
};

// Gives the chunk a file of its own if it has none. Returns nothing if there are no bytes to share
// (VMM_SIM_BACKING=none) or the system refuses.
std::optional<SharedFile> share(const std::shared_ptr<Chunk>& chunk);

// Returns a closed descriptor if the file is gone because it was freed or its process ended.
Fd open_shared(const SharedFile& shared);
bool is_alive(const SharedFile& shared);  // whether the process exists

// Distinguishes handles of this process from forged ones and those of another run.
std::uint64_t secret_of_this_process();

}  // namespace cuvmm::sim
