// SPDX-License-Identifier: Apache-2.0
// Memory that leaves its devices for a while: addresses and all bookkeeping stay, contents go
// somewhere else, and chunks are nobody's until they come back.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "alloc/allocation.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

class EvictionSource;

// One chunk behind live memory, and where it lies.
struct EvictedChunk {
  EvictionSource* of = nullptr;
  CUdeviceptr address = 0;  // where it can be read and written while it is mapped
  Size size = 0;
  Location home = Location::device(0);
  Export exportable = Export::No;
  ChunkRef chunk = {};  // nothing while it is away

  // The owner's own.
  void* what = nullptr;
  std::size_t index = 0;
  AccessSet access = {};
};

// A chunk behind memory that the program holds, at one of the addresses where it lies.
struct HeldChunk {
  CUdeviceptr address;
  Size size;
  Location where;
  CUmemGenericAllocationHandle chunk;
  // All of the blocks that lie in it there, from the first one's beginning to the last one's end.
  CUdeviceptr blocks;
  Size blocks_size;
  std::uint64_t holder;  // the buffer ID of the first; 0 where the program has freed it
};

// What is to leave one device, and what cannot.
struct EvictionSet {
  std::function<bool(const Chunk&)> wants;  // chunks that are to leave
  // What is kept for the next who asks may stay, and then keeps what it shares a chunk with.
  enum class Cached : std::uint8_t { Goes, Stays } cached = Cached::Goes;
  std::vector<EvictedChunk> chunks = {};
  std::vector<EvictionSource*> owners = {};
  Size stayed = 0;
  const char* why = "";  // the last that stayed did so

  void exclude(Size size, const char* reason) {
    stayed += size;
    why = reason;
  }
};

// Who has chunks mapped. From begin_eviction() to end_eviction() the program makes no calls and no
// work runs, so that nobody finds what is away; but asked for memory by others, it gives none.
class EvictionSource {
 public:
  // What the program holds, as of now. At any time.
  virtual void list_held(std::vector<HeldChunk>& held) const = 0;
  // Releases what nobody uses, and lists the rest.
  virtual void begin_eviction(EvictionSet& evicted) = 0;
  // The chunk is mapped no longer, and not referred to here. After an Error it may be mapped in
  // part: put_back() puts that right.
  virtual Result<void> take_out(EvictedChunk& one) = 0;
  // Chunks of the same sizes lie there again. After an Error some may: asked again it does the
  // rest, and take_out() undoes it.
  virtual Result<void> put_back(std::span<EvictedChunk> some) = 0;
  // They never will, since the driver has ended: from now on the books say they do, for the program
  // may still ask and free.
  virtual void count_as_restored(std::span<EvictedChunk> some) = 0;
  virtual void end_eviction() = 0;

 protected:
  ~EvictionSource() = default;
};

// Why an allocation's memory cannot leave; nullptr where it can.
inline const char* reason_to_stay(std::uint8_t pins) {
  if ((pins & pin::exported) != 0) return "another process holds it";
  if ((pins & pin::legacy_ipc) != 0) return "it has an IPC handle";
  if ((pins & pin::dma_buf) != 0) return "it has a dma-buf";
  if ((pins & pin::sync_memops) != 0) return "it has SYNC_MEMOPS, as others' transfers have it";
  if ((pins & pin::peer_tokens) != 0) return "it has P2P tokens";
  if ((pins & pin::multicast) != 0) return "it is bound to a multicast object";
  return nullptr;
}

}  // namespace cuvmm
