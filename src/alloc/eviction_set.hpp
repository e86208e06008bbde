// SPDX-License-Identifier: Apache-2.0
// Memory that leaves its devices for a time: addresses and all bookkeeping stay, the contents go
// elsewhere, and the owners give up their chunks until they get others back.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "alloc/allocation.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

class EvictionSource;
struct SharedChunk;
struct WindowBlock;

// One chunk behind live memory, and where it lies.
struct EvictedChunk {
  EvictionSource* of = nullptr;
  CUdeviceptr address = 0;  // where it can be accessed while it is mapped
  Size size = 0;
  Location home = Location::device(0);
  Export exportable = Export::No;
  ChunkRef chunk = {};  // empty while it is evicted
  // Of a chunk that the program created itself: it comes from no store.
  const CUmemAllocationProp* properties = nullptr;

  // For the owner's use. In an arena, its offset and access; in windows, a chunk that pieces share,
  // or a block and the index among its own chunks.
  std::size_t index = 0;
  AccessSet access = {};
  SharedChunk* shared = nullptr;
  WindowBlock* block = nullptr;
};

// A chunk behind memory that the program holds, at one of the addresses where it is mapped.
struct HeldChunk {
  CUdeviceptr address;
  Size size;
  Location where;
  CUmemGenericAllocationHandle chunk;
  // The blocks in it there: from the start of the first to the end of the last.
  CUdeviceptr blocks;
  Size blocks_size;
  std::uint64_t holder;  // the buffer ID of the first block; 0 if the program has freed it
  bool stays = false;    // it cannot leave: pinned, or held by another process
};

// The chunks that leave one device, and the bytes that cannot.
struct EvictionSet {
  std::function<bool(const Chunk&)> wants;  // selects the chunks to evict
  // Cached memory may stay, and then everything that shares a chunk with it stays too.
  enum class Cached : std::uint8_t { Goes, Stays } cached = Cached::Goes;
  std::vector<EvictedChunk> chunks = {};
  std::vector<EvictionSource*> owners = {};
  Size stayed = 0;
  const char* why = "";  // reason of the last exclusion

  // What already lies on the host occupies no device.
  void exclude(Size size, const Location& where, const char* reason) {
    if (where.is_host()) return;
    stayed += size;
    why = reason;
  }
};

// An owner of mapped chunks. Between begin_eviction() and end_eviction() the program makes no calls
// and no work runs, so evicted memory is never accessed. Meanwhile the source releases no memory to
// others that ask.
class EvictionSource {
 public:
  // Lists the chunks that the program holds now. Can be called at any time.
  virtual void list_held(std::vector<HeldChunk>& held) const = 0;
  // Releases unused chunks, and lists the rest.
  virtual void begin_eviction(EvictionSet& evicted) = 0;
  // Unmaps the chunk and drops the reference to it. After an Error it may be partly mapped;
  // put_back() repairs that.
  virtual Result<void> take_out(EvictedChunk& one) = 0;
  // Maps chunks of the same sizes at the old addresses. After an Error some may be mapped: another
  // call does the rest, and take_out() undoes it.
  virtual Result<void> put_back(std::span<EvictedChunk> some) = 0;
  // The driver has ended, so the chunks will never come back. Records them as restored, because the
  // program may still query and free its memory.
  virtual void count_as_restored(std::span<EvictedChunk> some) = 0;
  virtual void end_eviction() = 0;

 protected:
  ~EvictionSource() = default;
};

// Why an allocation's memory cannot leave; nullptr if it can.
inline const char* reason_to_stay(std::uint8_t pins) {
  if ((pins & pin::exported) != 0) return "another process holds it";
  if ((pins & pin::legacy_ipc) != 0) return "it has an IPC handle";
  if ((pins & pin::dma_buf) != 0) return "it has a dma-buf";
  if ((pins & pin::sync_memops) != 0)
    return "it has SYNC_MEMOPS set: devices may access it directly";
  if ((pins & pin::peer_tokens) != 0) return "it has P2P tokens";
  if ((pins & pin::multicast) != 0) return "it is bound to a multicast object";
  return nullptr;
}

}  // namespace cuvmm
