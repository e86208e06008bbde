// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "sim/chunk.hpp"

namespace cuvmm::sim {

// A chunk's own file as another process finds it: by the owner's descriptor, which /proc shows to
// processes of the same user. The inode tells whether it is still the same file.
struct SharedFile {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;
  std::uint64_t inode = 0;
};

// Gives the chunk a file of its own where it has none. Nothing where there are no bytes to share
// (VMM_SIM_BACKING=none) or the system refuses.
std::optional<SharedFile> share(const std::shared_ptr<Chunk>& chunk);

// Not open where the file is gone: it was freed, or its process ended.
Fd open_shared(const SharedFile& shared);
bool is_alive(const SharedFile& shared);  // its process

// So that handles made up, or of another run, are not taken for ours.
std::uint64_t secret_of_this_process();

}  // namespace cuvmm::sim
