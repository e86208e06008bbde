// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "alloc/eviction_set.hpp"
#include "alloc/record_pool.hpp"
#include "alloc/region_use.hpp"
#include "alloc/traced_arena.hpp"
#include "alloc/windows/cached_windows.hpp"
#include "alloc/windows/quiescence.hpp"
#include "alloc/windows/shared_chunks.hpp"
#include "alloc/windows/window_addresses.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/mapping.hpp"
#include "vmm/window_maps.hpp"

namespace cuvmm {

struct WindowSettings {
  int device = 0;
  Size granule = usual_granule;  // of the device
  Size device_memory = 0;        // total memory of the card
  AccessSet access;              // to all windows
  Size reserve_step = 64 * GiB;  // of addresses
  Size reserve_most = 0;         // 0: what the smallest windows need for the whole card
  Export exportable = Export::No;
  Duration wait{1'000'000};  // under pressure, before failing with out of memory
  int reclaim_order = 0;     // among the clients of the store
  std::uint64_t seed = 1;
  Quiescence* quiescence = nullptr;  // nullptr: live memory never moves. Outlives the windows
};

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

// How to move live pieces. The caller guarantees that nothing touches them meanwhile.
struct Compaction {
  CopyBy copy;
  Duration wait{
      1'000'000};  // for the copies of one batch, which take far less on a device that works
};

// Blocking memory of one context, in blocks from 64 KiB up. Every block has address granules of its
// own and keeps its address for life; the chunks behind them are shared and may change.
// Thread-safe.
class Windows final : public EvictionSource, public ReclaimClient {
 public:
  static Result<std::unique_ptr<Windows>> create(const Driver& driver, ChunkStore& store,
                                                 StreamOrder& order,
                                                 const WindowSettings& settings);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Only under pressure, releases cached windows, waits for pending frees, and compacts live
  // pieces. OutOfMemory if all that is not enough, or not in time.
  Result<WindowBlock*> allocate(Size asked, const GrowHint& grow_hint = {});

  // What could be put behind `to` instead of copying the first bytes of `from`: the chunks that lie
  // wholly within them.
  struct Movable {
    Size bytes = 0;
    std::size_t chunks = 0;
    std::size_t replaced = 0;  // chunks of `to` that are unmapped
    Size filler = 0;  // bytes that need new memory, because the last of those reaches further
    friend bool operator==(const Movable&, const Movable&) = default;
  };
  Movable movable(const WindowBlock& from, const WindowBlock& to, Size bytes) const;
  // Does that, and ends `from`, which the program must have released. `copy_rest` copies everything
  // beyond the given number of bytes, and waits for the copy. After an Error both blocks are as
  // they were, except for what deferred_bytes() reports for `to`. The context must be quiescent.
  Result<Movable> transfer(WindowBlock& from, WindowBlock& to, Size bytes,
                           const std::function<Result<void>(Size)>& copy_rest);
  // Maps memory, with undefined contents, behind the bytes of a live block that have none yet.
  Result<void> back(WindowBlock& block);
  Size deferred_bytes(const WindowBlock& block) const;

  // All work that could touch the block must be done.
  void free(WindowBlock& block);
  // Work may still touch the block until the ticket is done.
  void free_after(WindowBlock& block, const FreeTicket& ticket);

  // From now on the block keeps its chunks, and they take no new blocks. `why` is from namespace
  // pin. If another process may hold the memory, the block's slot is never reused either.
  void pin(WindowBlock& block, std::uint8_t why);
  void unpin(WindowBlock& block, std::uint8_t why);
  // The chunks behind a live block. Offsets count from the granule in which it begins.
  std::vector<MappedChunk> chunks_behind(const WindowBlock& block) const;

  // Sets the access to all present and future windows. All or nothing.
  Result<void> set_access(const AccessSet& access);

  Size reclaim(Size wanted, Location where) override;
  // Releases cached windows until at most `keep` bytes are held in addition to live ones, or
  // nothing more can be released without moving. Returns how many bytes it released.
  Size trim(Size keep);
  // The same, until `wanted` bytes are released.
  Size release(Size wanted);

  // Moves live pieces until `wanted` bytes of chunks have returned to the store, or no more can.
  // The context must be quiescent. Returns how many bytes it released.
  Result<Size> compact(Size wanted, const Compaction& how);

  // EvictionSource
  void list_held(std::vector<HeldChunk>& held) const override;
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  void count_as_restored(std::span<EvictedChunk> some) override;
  void end_eviction() override;

  // Ends all blocks, including live ones. No work may be left that could touch them.
  void release_all();

  WindowCounters counters() const;
  RegionUse use() const;
  // Records in the trace what the windows hold. For a process that is exiting: does nothing if
  // another thread has the lock.
  void tell_trace() const;
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  struct Request;      // one allocation in progress
  struct BatchMove;    // a piece, and the chunk to which compaction moves it
  struct BatchSource;  // a chunk and all its pieces in use
  struct Plan;         // the moves of a compaction
  struct Batch;        // the moves whose copies are submitted together
  class WindowRemap;   // a change of what backs windows
  class Turn;          // the right to reclaim under pressure: one thread at a time
  using Ages = LinkedList<WindowBlock, &WindowBlock::of_age>;

  Windows(const Driver& driver, ChunkStore& store, StreamOrder& order,
          const WindowSettings& settings);
  ChunkKind kind(Size size) const;
  // Under the lock. tell_of_change() records only if the amount of memory held has changed since
  // the last record. Neither does anything unless a trace is taken.
  void tell_of_change();
  void tell() const;
  Size held() const { return shared_.physical_bytes() + whole_bytes_; }

  // windows_allocate.cpp, windows_pressure.cpp. try_place() and everything that it calls run under
  // the lock.
  Result<WindowBlock*> place(Request& request);
  Result<WindowBlock*> place_under_pressure(Request& request, Error refusal);
  Result<WindowBlock*> try_place(Request& request);
  Result<void> take_missing(Request& request);
  Result<void> take_spilled(Request& request);
  Size obtainable_bytes() const;
  bool wait_for_a_free(std::uint64_t until);
  Result<bool> make_room(const Request& request);
  void set_compacting(bool is_compacting);
  void forget_refusals();
  std::uint64_t deadline() const;
  Result<WindowBlock*> map_block(const Request& request,
                                 const std::optional<SharedChunks::VacantSlot>& place);
  Result<void> map_all(WindowBlock& block, const std::vector<ChunkRef>& whole);
  WindowBlock* take_cached(Size granted);
  bool give_up_for(const Request& request);
  void give_up_some();
  Size missing_bytes(const Request& request);

  // windows_reclaim.cpp. Under the lock.
  void end_life(WindowBlock& block, const FreeTicket& ticket);
  void keep(WindowBlock& block);
  bool is_reusable(const WindowBlock& block) const;
  static Residency residency(const WindowBlock& block);
  Size far_bytes_of(const ChunkRef& chunk) const;
  void add_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk);
  void take_bytes_of(WindowBlock::Whole& whole, const ChunkRef& chunk);
  void hand_out(WindowBlock& block);
  void unmap_block(WindowBlock& block);
  bool unmap_all(WindowBlock& block);
  bool unmap_one(CUdeviceptr address, const ChunkRef& chunk);
  void give_up(WindowBlock& ready);
  void remove_if_vacant(SharedChunk& chunk);
  bool give_up_pieces(SharedChunk& idle);
  Size give_up_whole_chunks(Size wanted);
  void look_at_pending();
  std::size_t settle_pending();
  void tidy();
  void mend();
  void add_large(WindowBlock& block);
  void remove_large(WindowBlock& block);

  // windows_transfer.cpp. take_backing() takes the lock, the others are called under it.
  Result<std::vector<ChunkRef>> take_backing(Size wanted);
  std::vector<Size> likely_cuts(const Shape& shape, Size at_least) const;
  enum class Filler : std::uint8_t { Allowed, None };
  Movable plan_hand_over(const WindowBlock& from, const WindowBlock& to, Size bytes,
                         Filler filler) const;
  enum class IfRefused : std::uint8_t { Restore, Nothing };
  Result<void> exchange_front(WindowBlock& block, std::size_t count,
                              const std::vector<ChunkRef>& after, IfRefused if_refused);
  void end_emptied(WindowBlock& block);

  // windows_compact.cpp
  Plan plan_compaction(std::size_t chunks) const;
  Result<void> carry_out(Plan& plan, const Compaction& how, Size& freed);
  void begin(Batch& batch);
  bool begin_one(BatchSource& source);
  bool can_begin(const BatchSource& source) const;
  bool find_write_addresses(BatchSource& source) const;
  void give_up_moves(BatchSource& source);
  Result<void> copy(const Batch& batch) const;
  Result<void> finish(Batch& batch, bool copied, Size& freed);
  Result<void> exchange(SharedChunk& from, const std::vector<const BatchMove*>& moves);
  void finish_move(SharedChunk& from, const BatchMove& move);
  void cancel(WindowBlock& block, SharedChunk& target);
  bool end_emptying(const BatchSource& source);
  void settle_batches();

  // windows_eviction.cpp. Under the lock.
  static void add_slots(WindowRemap& remap, const EvictedChunk& one, const ChunkRef& after);
  void note_residency(SharedChunk& shared);

  std::vector<MappedRun> all_mapped() const;
  InvariantViolation violation_of_blocks() const;
  InvariantViolation violation_of_addresses() const;
  // Visits each block once: a moving piece lies in two chunks, but only one of them is its
  // `shared`.
  template <class Visit>
  void for_each_block(Visit visit) const {
    for (const SharedChunk* chunk : shared_.all()) {
      for (WindowBlock* piece : chunk->pieces) {
        if (piece->shared == chunk) visit(*piece);
      }
    }
    for (WindowBlock* block : large_) {
      if (block->shared == nullptr) visit(*block);
    }
  }

  const Driver& driver_;
  ChunkStore& store_;
  StreamOrder& order_;
  const WindowSettings settings_;
  const Size granule_;
  const TracedArena traced_;

  mutable Lock lock_{LockOrder::Windows};  // guards what follows
  RecordPool<WindowBlock> records_;
  WindowMaps maps_;
  WindowAddresses addresses_;
  SharedChunks shared_;
  CachedWindows cached_;
  std::vector<WindowBlock*> large_;   // blocks with chunks of their own, including freed ones
  Ages leaving_;                      // to be unmapped as soon as the driver allows it
  Error unmap_refusal_;               // the last refusal since a thread came under pressure
  std::vector<WindowBlock*> adrift_;  // live, but unusable because the driver refused an undo
  std::vector<std::unique_ptr<Batch>> unfinished_;  // copies that outlasted their time limit
  WindowCounters counters_;                         // only the live and the compacted ones
  Size whole_bytes_ = 0;                            // of chunks that belong to one block
  Size all_deferred_bytes_ = 0;                     // of live blocks, without memory
  Size whole_far_bytes_ = 0;                        // of whole_bytes_
  std::uint64_t changes_ = 0;                       // that may let compaction free more
  std::uint64_t worth_while_from_ = 0;              // the value of changes_ at which to plan again
  Size futile_bytes_ = 0;                           // compaction for this much or more is futile
  bool is_away_ = false;                            // during an eviction: chunks are missing
  bool turn_is_taken_ = false;
  bool is_compacting_ = false;  // the thread that has the turn
  Condition turn_ended_;
  Size told_held_ = 0;  // last recorded in the trace
  Size told_compacted_ = 0;

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
