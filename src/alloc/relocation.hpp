// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "alloc/allocation.hpp"
#include "base/clock.hpp"
#include "vmm/chunk_ref.hpp"
#include "vmm/rebind.hpp"

namespace cuvmm {

// Live memory that is to go to other chunks, as a whole device's: contents and addresses stay. Who
// carries it out knows that no work touches any of it meanwhile.
//
// First it is carried out with Do::Count, which says what chunks it takes. They are got under no
// lock, and then it is carried out with Do::Move. What has changed in between is counted again.
struct Relocation {
  enum class Do : std::uint8_t { Count, Move };
  enum class Free : std::uint8_t { Stays, IsLetGo };

  Do what = Do::Count;
  std::function<bool(const Chunk&)> wants;  // chunks that are to be replaced
  Free free = Free::Stays;                  // chunks that nobody uses
  Duration wait{10'000'000};                // for what is copied at once
  CopyBy copy;                              // set for each context

  std::map<Size, std::vector<ChunkRef>> ready;  // to replace others, by their size
  std::map<Size, std::size_t> missing;          // those that were not ready
  Size moved = 0;
  Size stayed = 0;               // could not be moved
  const char* why = "";          // the last that stayed did so
  bool copies_may_run = false;   // after a failure: so their stream must live
  std::optional<Error> failure;  // that ended it early; what was done before it is done

  // One to replace a chunk with; nothing where there is none, and then it is missing.
  ChunkRef take(Size size) {
    const auto found = ready.find(size);
    if (found == ready.end() || found->second.empty()) {
      ++missing[size];
      return {};
    }
    ChunkRef chunk = std::move(found->second.back());
    found->second.pop_back();
    return chunk;
  }
  void stays(Size size, const char* reason) {
    stayed += size;
    why = reason;
  }
  Size missing_bytes() const {
    Size bytes = 0;
    for (const auto& [size, count] : missing) bytes += size * count;
    return bytes;
  }
};

// Why an allocation's memory cannot leave; nullptr where it can.
inline const char* reason_to_stay(std::uint8_t pins) {
  if ((pins & pin::exported) != 0) return "another process holds it";
  if ((pins & pin::legacy_ipc) != 0) return "it has an IPC handle";
  if ((pins & pin::dma_buf) != 0) return "it has a dma-buf";
  if ((pins & pin::peer_tokens) != 0) return "it has P2P tokens";
  return nullptr;
}

}  // namespace cuvmm
