// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/lock.hpp"
#include "base/undo.hpp"
#include "pool/fences.hpp"
#include "pool/pool_bytes.hpp"
#include "pool/pool_copies.hpp"
#include "pool/pool_places.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

// Who says how much physical memory a pool may hold. Asked under the pool's lock.
class PoolQuota {
 public:
  // OutOfMemory, with what is available, where it cannot be granted now.
  virtual Result<void> claim(Size bytes) = 0;
  virtual void give_back(Size bytes) = 0;

 protected:
  ~PoolQuota() = default;
};

enum class Movable : std::uint8_t { No, Yes };    // compact() may give it another offset
enum class Evictable : std::uint8_t { No, Yes };  // may be taken, contents and all

struct AllocationTraits {
  Movable movable = Movable::No;
  Evictable evictable = Evictable::No;
};

// An allocation that compact() has moved.
struct Move {
  Size from;
  Size to;
  Size size;
};

struct PoolCompaction {
  std::vector<Move> moves;
  Size physical_released = 0;  // by moving and sharing
  Size cached_released = 0;    // free chunks given back to the driver
};

struct ElasticStats {
  Size capacity = 0;
  Size allocated = 0;
  Size physical = 0;  // chunks that the pool holds, shared ones once
  std::size_t mapped_granules = 0;
  Size free = 0;                  // addresses that nobody has
  Size largest_free = 0;          // the largest that an allocation finds
  std::vector<Size> physical_at;  // by place

  // 0: what is free is one piece; towards 1: many small ones.
  double fragmentation() const {
    return free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};

// What became of contents while a pool was parked.
enum class Activation : std::uint8_t { Kept, Lost };

// Addresses whose memory comes granule by granule as it is allocated, and goes with a granule's
// last byte. What is allocated is known byte by byte, so allocations may share a granule, and
// stretches that lie side by side may be freed as one. Nothing changes address but what is Movable.
//
// Invariant: what is mapped behind live bytes is changed by compact(), park() and evict() alone,
// and only while nothing runs that the pool was told of (fence()). Allocating maps granules that
// had no memory, and nothing else: PoolBytes sees to it that no live granule has to make room.
// Deallocating unmaps granules that have lost their last byte, after the fences.
//
// Everything may be called from any thread.
class ElasticPool {
 public:
  struct Settings {
    Size capacity = 0;                // rounded up to granules
    Size most_capacity = 0;           // how far it may grow; 0: as far as it is now
    Size physical_limit = unlimited;  // of this pool
    PoolQuota* quota = nullptr;       // outlives the pool
  };
  static Result<std::unique_ptr<ElasticPool>> create(std::shared_ptr<const PoolPlaces> places,
                                                     const Settings& settings);
  ~ElasticPool();
  ElasticPool(const ElasticPool&) = delete;
  ElasticPool& operator=(const ElasticPool&) = delete;

  CUdeviceptr base_address() const { return ground_->addresses.address(); }
  Size granule() const { return places_->granule(); }
  Size capacity() const;
  const PoolPlaces& places() const { return *places_; }

  // The offset of a free place, a multiple of 512 bytes.
  Result<Size> allocate(Size size, AllocationTraits traits = {});
  // What refuses bytes by their place says in `available` how many from the first one on could have
  // been had: the one after them is in the way.
  //
  // InvalidOffset. AlreadyMapped where any byte of it is allocated, or withheld because its granule
  // shares a chunk with one that has that byte; the next compact() gives such a granule a chunk of
  // its own, if there is memory.
  Result<void> allocate_at(Stretch stretch, AllocationTraits traits = {});
  // Any bytes that are allocated, be it parts or several allocations. Waits for the fences.
  Result<void> deallocate(Stretch stretch);
  // Every byte is allocated, and mapped now.
  bool is_mapped(Stretch stretch) const;

  // Calls `lend` for the chunk of each granule, upwards, of a stretch of whole granules that is
  // allocated to the last byte; InvalidOffset where it is none. What `lend` has exported is neither
  // moved nor shared by compact() from then on.
  Result<void> lend(Stretch stretch,
                    const std::function<Result<void>(const ChunkRef&)>& lend_one) const;

  // Addresses only; up to what was reserved.
  Result<void> grow(Size capacity);
  Size trim() const { return places_->trim(); }
  Result<void> fence(CUstream stream) { return fences_->add(stream); }
  Result<void> wait_for_fences() { return fences_->wait(); }
  // The caller submits nothing that uses the pool meanwhile, fenced or not. TimedOut where fences
  // keep coming.
  Result<PoolCompaction> compact();

  ElasticStats stats() const;
  InvariantViolation violation() const;

  // Takes Evictable allocations until so many bytes are free, or there are none left: which ones.
  // TimedOut where fences keep coming; then nothing is taken.
  struct Evicted {
    std::vector<Stretch> allocations;
    Size physical = 0;
  };
  Result<Evicted> evict(Size wanted);
  Size evictable_bytes() const;

  // Unmaps all memory and keeps it aside; addresses stay allocated. Waits for the fences; TimedOut
  // where they keep coming.
  Result<void> park();
  // Maps it again where it was, or new memory where it has been taken.
  Result<Activation> unpark();
  // Gives up the memory that is kept aside. Returns how many bytes that was.
  Size drop_parked();
  bool is_parked() const;
  Size parked_bytes() const;

  // Everything is given back, and nothing can be allocated any more. Waits for the fences.
  void close();

 private:
  // What must outlive work that may still run.
  struct Ground {
    explicit Ground(Reservation&& taken)
        : addresses(std::move(taken)), mapping(Mapping::of(addresses)) {}
    Reservation addresses;
    Mapping mapping;
  };
  enum class State : std::uint8_t { Active, Parked, Closed };
  using Granules = std::vector<Size>;
  struct CompactionPlan;

  ElasticPool(std::shared_ptr<const PoolPlaces> places, const Settings& settings, Size capacity,
              std::shared_ptr<Ground> ground);

  // The lock, once no work runs that the pool was told of.
  Result<Holding> lock_when_idle(const char* doing);

  // All under the lock.
  Result<void> check_active(const char* doing) const;
  Result<void> check_stretch(const char* doing, Stretch stretch) const;
  Result<void> place(Stretch stretch, AllocationTraits traits);
  Result<Size> remove(Stretch stretch);  // how much physical memory that freed
  Granules granules_of(Stretch stretch) const;
  Granules without_memory(const Granules& granules) const;
  Error conflict(Stretch stretch);
  Granules emptied_by_removing(Stretch stretch) const;
  Stretch of_granule(Size granule) const { return {granule * this->granule(), this->granule()}; }
  Result<std::vector<ChunkRef>> take_chunks(const Granules& granules);
  // For a change that takes chunks, before it does: unless it is kept, what was made for it goes
  // back to the driver.
  auto release_what_was_made() const {
    return Undo{[places = places_.get(), before = places_->kept_bytes()] {
      places->release_beyond(before);
    }};
  }
  // After a change that failed, and whose undoing may have failed too: what is really held.
  void recount();
  Result<void> copy_into(const Granules& granules, const std::vector<ChunkRef>& chunks);
  Result<PoolCopies*> copies();
  std::vector<MappedChunk> chunks_of(const Granules& granules) const;
  Result<void> unmap(const std::vector<MappedChunk>& chunks);
  Size forget_granules(const std::vector<MappedChunk>& gone);
  void hold(const ChunkRef& chunk);
  void release_chunk(const ChunkRef& chunk);

  bool is_lent(Size granule) const;
  bool reaches_into_lent(Size offset, Size size) const;
  void plan_moves(CompactionPlan& plan) const;
  void find_emptied(CompactionPlan& plan) const;
  Result<void> plan_separation(CompactionPlan& plan);
  void plan_sharing(CompactionPlan& plan) const;
  Result<void> change_mapping(const CompactionPlan& plan, const std::vector<MappedChunk>& gone);
  Result<void> copy_for(const CompactionPlan& plan);
  Result<void> add_copy(CopyBytes& copying, Size to, Size from, Size size) const;
  void carry_out(const CompactionPlan& plan, const std::vector<MappedChunk>& gone);

  const std::shared_ptr<const PoolPlaces> places_;  // immutable after construction
  PoolQuota* const quota_;
  const Size physical_limit_;
  const std::shared_ptr<Ground> ground_;
  const std::shared_ptr<Fences> fences_;

  mutable Lock lock_{LockOrder::ElasticPool};  // guards what follows, and the mapping
  State state_ = State::Active;
  PoolBytes bytes_;
  std::set<Size> asked_for_;        // granules where an allocation was refused withheld bytes
  std::map<Size, Size> movable_;    // allocations by offset, and their sizes
  std::map<Size, Size> evictable_;  // the same
  std::vector<Size> physical_at_;   // by place
  Size physical_ = 0;
  std::vector<MappedChunk> parked_;  // while it is parked and nobody took them
  bool parked_is_lost_ = false;
  // The driver refused an undo: some allocated granule has no memory, or a free one has.
  bool is_damaged_ = false;
  std::shared_ptr<PoolCopies> copies_;  // made when first needed
};

}  // namespace cuvmm
