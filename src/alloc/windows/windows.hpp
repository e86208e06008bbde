// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "alloc/memory_pressure.hpp"
#include "alloc/move_pace.hpp"
#include "alloc/region_use.hpp"
#include "alloc/traced_arena.hpp"
#include "alloc/windows/window_compactor.hpp"
#include "alloc/windows/window_eviction.hpp"
#include "alloc/windows/window_settings.hpp"
#include "alloc/windows/window_table.hpp"
#include "alloc/windows/window_transfer.hpp"
#include "vmm/mapping.hpp"

namespace cuvmm {

// How to prepare a block so that another block's chunks can be put behind its addresses later. The
// likely other block is the one with the most bytes in whole chunks that fit.
struct GrowHint {
  enum class Kind : std::uint8_t {
    None,
    Cuts,     // its chunks end where the other block's do
    Promise,  // and it has no memory in their place until back() or transfer()
  };
  Kind kind = Kind::None;
  Size granules_at_least = 0;  // per chunk on average; smaller chunks gain nothing
};

struct WindowCounters {
  std::size_t live_blocks = 0;
  Size live_bytes = 0;  // granted
  std::size_t cached_blocks = 0;
  Size cached_bytes = 0;    // freed but still mapped
  Size vacant_bytes = 0;    // of shared chunks that take blocks
  Size physical_bytes = 0;  // all chunks held
  Size spilled_bytes = 0;   // of physical_bytes
  Size spilled_taken = 0;   // of spilled_bytes, taken by blocks
  Size mapped_bytes = 0;    // of windows: a chunk counts once in each
  Size reserved_bytes = 0;
  Size compacted_bytes = 0;  // so far
  std::size_t compacted_blocks = 0;
  std::size_t compacted_chunks = 0;  // emptied
};

// Blocking memory of one context, in blocks from 64 KiB up. Every block has address granules of its
// own and keeps its address for life; the chunks behind them are shared and may change.
// Thread-safe.
class Windows final : public ReclaimClient {
 public:
  static Result<std::unique_ptr<Windows>> create(const Driver& driver, ChunkStore& store,
                                                 StreamOrder& order,
                                                 const WindowSettings& settings);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Only under pressure, releases cached windows, waits for pending frees, and compacts live
  // pieces. OutOfMemory if all that is not enough, or not in time.
  Result<WindowBlock*> allocate(Size asked, const GrowHint& grow_hint, MemoryPressure& pressure);
  Result<WindowBlock*> allocate(Size asked, const GrowHint& grow_hint = {}) {
    MemoryPressure alone{settings_.wait};
    return allocate(asked, grow_hint, alone);
  }

  // All work that could touch the block must be done.
  void free(WindowBlock& block);
  // Work may still touch the block until the ticket is done.
  void free_after(WindowBlock& block, const FreeTicket& ticket);

  // From now on the block keeps its chunks, and they take no new blocks. `why` is from namespace
  // pin. If another process may hold the memory, the block's slot is never reused either.
  void pin(WindowBlock& block, std::uint8_t why);
  void unpin(WindowBlock& block, std::uint8_t why);
  // The chunks behind a live block. Offsets count from the granule in which it begins.
  ChunksBehind chunks_behind(const WindowBlock& block) const;

  // Sets the access to all present and future windows. All or nothing.
  Result<void> set_access(const AccessSet& access);

  // Resizing without a copy.
  WindowTransfer& transfer() { return transfer_; }
  EvictionSource& eviction() { return eviction_; }
  const EvictionSource& eviction() const { return eviction_; }

  Size reclaim(Size wanted, Location where) override;
  // Releases cached windows until at most `keep` bytes are held in addition to live ones, or
  // nothing more can be released without moving. Returns how many bytes it released.
  Size trim(Size keep);
  // The same, until `wanted` bytes are released.
  Size release(Size wanted);
  // The same, but at most as much as takes few driver calls, and nothing that pending work uses.
  Size release_cheap(Size wanted);

  // Moves live pieces until `wanted` bytes of chunks have returned to the store, or no more can.
  // The context must be quiescent. Returns how many bytes it released.
  Result<Size> compact(Size wanted, const Compaction& how);

  // Ends all blocks, including live ones. No work may be left that could touch them.
  void release_all();

  WindowCounters counters() const;
  RegionUse use() const;
  // Records in the trace what the windows hold. For a process that is exiting: does nothing if
  // another thread has the lock.
  void trace_holdings() const;
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  class Turn;  // the right to reclaim under pressure: one thread at a time

  Windows(const Driver& driver, ChunkStore& store, StreamOrder& order,
          const WindowSettings& settings);
  // Under the lock, also give_up(). tell_of_change() records only if the amount of memory held has
  // changed since the last record. Neither does anything unless a trace is taken.
  void tell_of_change();
  void tell() const;
  Size give_up(Size wanted);

  // windows_allocate.cpp
  Result<WindowBlock*> place(WindowRequest& request);
  Result<WindowBlock*> try_place(WindowRequest& request);  // under the lock
  Result<void> take_missing(WindowRequest& request);
  Result<void> take_spilled(WindowRequest& request);
  Size obtainable_bytes() const;

  // windows_pressure.cpp
  [[gnu::cold]] Result<WindowBlock*> place_under_pressure(WindowRequest& request,
                                                          MemoryPressure& pressure, Error refusal);
  bool wait_for_a_free(std::uint64_t until);
  [[gnu::cold]] Result<bool> make_room(const WindowRequest& request, std::uint64_t until);
  void set_compacting(bool is_compacting);
  void forget_refusals();
  bool may_spill(const WindowRequest& request);
  // Under the lock.
  bool give_up_for(const WindowRequest& request);
  void give_up_some();
  Size missing_bytes(const WindowRequest& request);

  ChunkStore& store_;
  const WindowSettings settings_;
  const TracedArena traced_;

  WindowTable table_;  // its lock guards what follows
  WindowCompactor compactor_{table_};
  MovePace pace_;
  WindowTransfer transfer_;
  WindowEviction eviction_{table_, compactor_};
  bool turn_is_taken_ = false;
  bool is_compacting_ = false;  // the thread that has the turn
  Condition turn_ended_;
  Size told_held_ = 0;  // last recorded in the trace
  Size told_compacted_ = 0;

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
