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
  Size device_memory = 0;        // of the card: nobody can have more
  AccessSet access;              // who may use all windows
  Size reserve_step = 64 * GiB;  // of addresses
  Size reserve_most = 0;         // 0: what the smallest windows need for the whole card
  Export exportable = Export::No;
  Duration wait{1'000'000};  // under pressure, before the answer is out of memory
  int reclaim_order = 0;     // among those whom the store asks for memory
  std::uint64_t seed = 1;
  Quiescence* quiescence = nullptr;  // nullptr: nothing live is ever moved. Outlives the windows
};

// What is done so that another block's chunks can be put behind this one's addresses later. The
// block that it probably takes over from is the one with the most whole chunks that fit.
struct GrowHint {
  enum class Kind : std::uint8_t {
    None,
    Cuts,     // its chunks end where those of that block end
    Promise,  // and in their place it has no memory, until back() or transfer()
  };
  Kind kind = Kind::None;
  Size granules_at_least = 0;  // in fewer there is nothing to gain
};

struct WindowCounters {
  std::size_t live_blocks = 0;
  Size live_bytes = 0;  // granted
  std::size_t cached_blocks = 0;
  Size cached_bytes = 0;    // granted once, freed since, and still mapped
  Size vacant_bytes = 0;    // of shared chunks, where blocks can be put
  Size physical_bytes = 0;  // all chunks held
  Size spilled_bytes = 0;   // of them
  Size spilled_taken = 0;   // of those, what blocks take
  Size mapped_bytes = 0;    // of windows: a chunk counts once in each
  Size reserved_bytes = 0;
  Size compacted_bytes = 0;  // so far
  std::size_t compacted_blocks = 0;
  std::size_t compacted_chunks = 0;  // that were emptied
};

// How live pieces are moved, by somebody who knows that nothing touches them meanwhile.
struct Compaction {
  CopyBy copy;
  Duration wait{
      1'000'000};  // for what is copied at once, which takes far less on a device that runs
};

// Blocking memory of one context, from 64 KiB up. Every block has address granules of its own, and
// keeps its address for life; the chunks behind them are shared, and change. Everything may be
// called from any thread.
class Windows final : public EvictionSource, public ReclaimClient {
 public:
  static Result<std::unique_ptr<Windows>> create(const Driver& driver, ChunkStore& store,
                                                 StreamOrder& order,
                                                 const WindowSettings& settings);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Under pressure, and only then: gives cached windows up, waits for pending frees, moves live
  // pieces together. OutOfMemory where all that is not enough, or not in time.
  Result<WindowBlock*> allocate(Size asked, const GrowHint& grow_hint = {});

  // What could be put behind `to` instead of a copy of the first bytes of `from`: chunks that lie
  // wholly within them.
  struct Movable {
    Size bytes = 0;
    std::size_t chunks = 0;
    std::size_t replaced = 0;  // chunks of `to` that go
    Size filler = 0;           // bytes that need new chunks, since one that goes reaches further
    friend bool operator==(const Movable&, const Movable&) = default;
  };
  Movable movable(const WindowBlock& from, const WindowBlock& to, Size bytes) const;
  // Does that, and ends `from`, which nobody holds any more. `copy_rest` copies what lies beyond so
  // many bytes, and waits for it. After an Error both are as they were, but for what
  // deferred_bytes() says of `to`. The caller is in a quiescent period.
  Result<Movable> transfer(WindowBlock& from, WindowBlock& to, Size bytes,
                           const std::function<Result<void>(Size)>& copy_rest);
  // Memory for the bytes of a live block that have none yet, whatever they hold.
  Result<void> back(WindowBlock& block);
  Size deferred_bytes(const WindowBlock& block) const;

  // All work that could touch it is done.
  void free(WindowBlock& block);
  // It may still be touched until the ticket is done.
  void free_after(WindowBlock& block, const FreeTicket& ticket);

  // From here on the block keeps its chunks, and they take no new blocks; `why` is of namespace
  // pin. Where another process may hold the memory, its slot is not used again either.
  void pin(WindowBlock& block, std::uint8_t why);
  void unpin(WindowBlock& block, std::uint8_t why);
  // What lies behind a live block: offsets count from the granule that it begins in.
  std::vector<MappedChunk> chunks_behind(const WindowBlock& block) const;

  // For all windows, those to come included; all or none.
  Result<void> set_access(const AccessSet& access);

  Size reclaim(Size wanted, Location where) override;
  // Gives cached windows up, until no more than `keep` bytes are held beyond live ones or nothing
  // more can be had without moving. Returns how much went.
  Size trim(Size keep);
  // The same until `wanted` bytes went.
  Size release(Size wanted);

  // Moves live pieces until `wanted` bytes of chunks have gone back to the store, or no more can
  // be. The caller is in a quiescent period. Returns how much went.
  Result<Size> compact(Size wanted, const Compaction& how);

  // EvictionSource
  void list_held(std::vector<HeldChunk>& held) const override;
  void begin_eviction(EvictionSet& evicted) override;
  Result<void> take_out(EvictedChunk& one) override;
  Result<void> put_back(std::span<EvictedChunk> some) override;
  void count_as_restored(std::span<EvictedChunk> some) override;
  void end_eviction() override;

  // All blocks end, live ones too. No work is left that could touch them.
  void release_all();

  WindowCounters counters() const;
  RegionUse use() const;
  // What they hold, to the trace. For a process that ends: nothing where somebody is at work.
  void tell_trace() const;
  InvariantViolation violation() const;
  void check() const { must_hold(violation()); }

 private:
  struct Request;      // one allocation under way
  struct BatchMove;    // a piece, and the chunk that compaction moves it to
  struct BatchSource;  // a chunk and all its pieces in use
  struct Plan;         // what compaction is to move
  struct Batch;        // what it copies at once
  class Turn;          // the right to make room by force: one thread at a time
  using Ages = LinkedList<WindowBlock, &WindowBlock::of_age>;

  Windows(const Driver& driver, ChunkStore& store, StreamOrder& order,
          const WindowSettings& settings);
  ChunkKind kind(Size size) const;
  // Under the lock. The trace, where it is taken and they hold another amount of memory than when
  // it was told last.
  void tell_of_change();
  void tell() const;
  Size held() const { return shared_.physical_bytes() + whole_bytes_; }

  // windows_allocate.cpp, windows_pressure.cpp. `try_` and what is called by it: under the lock.
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

  // windows_transfer.cpp. The first takes the lock, the others are called under it.
  Result<std::vector<ChunkRef>> take_backing(Size wanted);
  std::vector<Size> likely_cuts(const Shape& shape, Size at_least) const;
  enum class Filler : std::uint8_t { Allowed, None };
  Movable plan_hand_over(const WindowBlock& from, const WindowBlock& to, Size bytes,
                         Filler filler) const;
  Result<void> take_front(WindowBlock& block, Size bytes);
  Result<void> put_front(WindowBlock& block, const std::vector<ChunkRef>& chunks);
  Result<void> exchange_front(WindowBlock& block, const std::vector<ChunkRef>& chunks,
                              const std::vector<ChunkRef>& before);
  void put_back(WindowBlock& block, Size bytes, const std::vector<ChunkRef>& before);
  void end_emptied(WindowBlock& block);

  // windows_compact.cpp
  Plan plan_compaction(std::size_t chunks) const;
  Result<void> carry_out(Plan& plan, const Compaction& how, Size& freed);
  void begin(Batch& batch);
  bool begin_one(BatchSource& source);
  bool can_begin(const BatchSource& source) const;
  bool find_ways(BatchSource& source) const;
  void give_up_moves(BatchSource& source);
  Result<void> copy(const Batch& batch) const;
  Result<void> finish(Batch& batch, bool copied, Size& freed);
  Result<void> exchange(SharedChunk& from, const BatchMove& move);
  void cancel(WindowBlock& block, SharedChunk& target);
  bool end_emptying(const BatchSource& source);
  void settle_batches();

  // windows_eviction.cpp. Under the lock.
  Result<void> take_out_shared(SharedChunk& shared);
  Result<void> put_back_shared(SharedChunk& shared);

  std::vector<MappedRun> all_mapped() const;
  InvariantViolation violation_of_blocks() const;
  InvariantViolation violation_of_addresses() const;
  // Each once: a moving piece lies in two chunks, and is at home in one.
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
  std::vector<WindowBlock*> large_;   // those with chunks of their own, freed ones too
  Ages leaving_;                      // to be unmapped as soon as the driver lets us
  Error unmap_refusal_;               // why not, since somebody came under pressure
  std::vector<WindowBlock*> adrift_;  // live, and not usable since the driver refused an undo
  std::vector<std::unique_ptr<Batch>> unfinished_;  // copies that outlived their time
  WindowCounters counters_;                         // live and compacted ones only
  Size whole_bytes_ = 0;                            // of chunks that belong to one block
  Size all_deferred_bytes_ = 0;                     // of live blocks, without memory
  Size whole_far_bytes_ = 0;                        // of those
  std::uint64_t changes_ = 0;                       // that may let compaction do better than before
  std::uint64_t worth_while_from_ = 0;              // changes_, for compaction to free
  Size futile_bytes_ = 0;                           // so much or more
  bool is_away_ = false;                            // some of what is said to be mapped is not
  bool turn_is_taken_ = false;
  bool is_compacting_ = false;  // who has the turn
  Condition turn_ended_;
  Size told_held_ = 0;  // to the trace
  Size told_compacted_ = 0;

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
