// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "alloc/record_pool.hpp"
#include "alloc/windows/cached_windows.hpp"
#include "alloc/windows/shared_chunks.hpp"
#include "alloc/windows/window_addresses.hpp"
#include "alloc/windows/window_settings.hpp"
#include "base/lock.hpp"
#include "vmm/window_maps.hpp"

namespace cuvmm {

struct WindowRequest;

// The windows of one context: every block, live or freed, with its backing, and the totals.
// Windows, WindowCompactor, WindowTransfer and WindowEviction change it under its lock, which also
// guards their own members that are not constant.
struct WindowTable {
  WindowTable(const Driver& driver, StreamOrder& order, const WindowSettings& settings);
  WindowTable(const WindowTable&) = delete;
  WindowTable& operator=(const WindowTable&) = delete;

  // A cached window for a block of that size; nullptr if there is none.
  WindowBlock* take_cached(Size granted);
  // Maps a new window: its piece in the place, and the chunks that the request has taken.
  Result<WindowBlock*> map_block(const WindowRequest& request,
                                 const std::optional<SharedChunks::VacantSlot>& place);

  // Frees a live block. Earlier work may touch it until the ticket is done. Does nothing if all
  // blocks have been released.
  void end_life(WindowBlock& block, const FreeTicket& ticket);
  // Keeps a block for the next one of its size. It was in use until now, and is in no list.
  void keep(WindowBlock& block);
  // Keeps all blocks that no work can touch any longer. Returns how many.
  std::size_t settle_pending();
  // Retries what the driver refused.
  void tidy();

  // Unmaps the window of a block that is not held, not in use and in no list, and ends the block.
  // If the driver refuses, tidy() tries the rest again.
  void unmap_block(WindowBlock& block);
  void give_up(WindowBlock& ready);
  // Releases all windows of a chunk without a piece in use. Returns whether the chunk is gone.
  bool give_up_pieces(SharedChunk& idle);
  // Releases chunks without a piece in use, until `wanted` bytes have returned to the store.
  Size give_up_whole_chunks(Size wanted);
  // The same, but only what takes few driver calls: large windows, then at most two shared chunks,
  // since each of their pieces is unmapped by a call.
  Size give_up_cheap_chunks(Size wanted);
  void remove_if_vacant(SharedChunk& chunk);

  // Account for a chunk of a block's own that is now mapped, or no longer.
  void add_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk);
  void take_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk);

  Size held() const { return shared.physical_bytes() + whole_bytes; }
  std::vector<MappedRun> all_mapped() const;
  // Ends all blocks, including live ones. No work may be left that could touch them.
  void release_all();
  InvariantViolation violation() const;

  // Visits each block once: a moving piece lies in two chunks, but only one of them is its
  // `shared`.
  template <class Visit>
  void for_each_block(Visit visit) const {
    for (const SharedChunk* chunk : shared.all()) {
      for (WindowBlock* piece : chunk->pieces) {
        if (piece->shared == chunk) visit(*piece);
      }
    }
    for (WindowBlock* block : large) {
      if (block->shared == nullptr) visit(*block);
    }
  }

  const Driver& driver;
  StreamOrder& order;
  const int device;
  const Size granule;

  mutable Lock lock{LockOrder::Windows};  // guards what follows
  RecordPool<WindowBlock> records;
  WindowMaps maps;
  WindowAddresses addresses;
  SharedChunks shared;
  CachedWindows cached;
  std::vector<WindowBlock*> large;  // with chunks of their own, freed or not
  LinkedList<WindowBlock, &WindowBlock::of_age>
      leaving;                       // unmapped as soon as the driver allows it
  Error unmap_refusal;               // the last refusal since a thread came under pressure
  std::vector<WindowBlock*> adrift;  // live, but unusable because the driver refused an undo
  std::size_t live_blocks = 0;
  Size live_bytes = 0;
  Size whole_bytes = 0;       // of chunks that belong to one block
  Size whole_far_bytes = 0;   // of whole_bytes
  Size deferred_bytes = 0;    // of live blocks, without memory
  std::uint64_t changes = 0;  // that may let compaction free more
  bool is_away = false;       // during an eviction: chunks are missing

 private:
  Result<void> map_all(WindowBlock& block, const std::vector<ChunkRef>& whole);
  void hand_out(WindowBlock& block);
  bool is_reusable(const WindowBlock& block) const;
  static Residency residency(const WindowBlock& block);
  Size far_bytes_of(const ChunkRef& chunk) const;
  bool unmap_all(WindowBlock& block);
  bool unmap_one(CUdeviceptr address, const ChunkRef& chunk);
  void look_at_pending();
  void give_up_large(Size wanted);
  void give_up_shared(Size wanted, int most);
  void retry_refused();
  void add_large(WindowBlock& block);
  void remove_large(WindowBlock& block);
  InvariantViolation violation_of_blocks() const;
  InvariantViolation violation_of_addresses() const;
};

}  // namespace cuvmm
