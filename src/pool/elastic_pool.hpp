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

// Limits how much physical memory a pool may hold. Called under the pool's lock.
class PoolQuota {
 public:
  // OutOfMemory, with the bytes available, if the claim cannot be granted now.
  virtual Result<void> claim(Size bytes) = 0;
  virtual void give_back(Size bytes) = 0;

 protected:
  ~PoolQuota() = default;
};

enum class Movable : std::uint8_t { No, Yes };    // compact() may change its offset
enum class Evictable : std::uint8_t { No, Yes };  // evict() may take it; its contents are lost

struct AllocationTraits {
  Movable movable = Movable::No;
  Evictable evictable = Evictable::No;
};

// An allocation moved by compact().
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
  Size physical = 0;  // chunks that the pool holds, each counted once
  std::size_t mapped_granules = 0;
  Size free = 0;                  // unallocated addresses
  Size largest_free = 0;          // the largest allocation that can succeed
  std::vector<Size> physical_at;  // by place

  // 0: all free addresses are contiguous; towards 1: many small pieces.
  double fragmentation() const {
    return free == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free) / static_cast<double>(free);
  }
};

// Whether the contents survived while a pool was parked.
enum class Activation : std::uint8_t { Kept, Lost };

// A range of addresses whose memory is mapped granule by granule as it is allocated, and unmapped
// when a granule's last byte is freed. Allocation is tracked byte by byte, so allocations may share
// a granule, and adjacent stretches may be freed as one. Only Movable allocations ever change
// address.
//
// Invariant: only compact(), park() and evict() change the mapping behind live bytes, and only
// while no work behind a fence (fence()) is running. Allocating only maps granules that
// had no memory: PoolBytes ensures that no live granule has to make room. Deallocating waits for
// the fences, then unmaps granules that have lost their last byte.
//
// Thread-safe.
class ElasticPool {
 public:
  struct Settings {
    Size capacity = 0;                // rounded up to granules
    Size most_capacity = 0;           // limit for grow(); 0: chosen by the pool
    Size physical_limit = unlimited;  // of this pool
    PoolQuota* quota = nullptr;       // must outlive the pool
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

  // The offset of the new allocation, a multiple of 512 bytes.
  Result<Size> allocate(Size size, AllocationTraits traits = {});
  // Functions that refuse a stretch report in `available` how many of its leading bytes they would
  // have accepted.
  //
  // InvalidOffset. AlreadyMapped if any byte is allocated, or is withheld because its granule
  // shares a chunk with one in which that byte is allocated; the next compact() gives such a
  // granule a chunk of its own, if there is memory.
  Result<void> allocate_at(Stretch stretch, AllocationTraits traits = {});
  // Frees any allocated bytes, whether part of an allocation or several. Waits for the fences.
  Result<void> deallocate(Stretch stretch);
  // Whether every byte is allocated and currently mapped.
  bool is_mapped(Stretch stretch) const;

  // Calls `lend_one` for the chunk of each granule, in address order, of a stretch of whole, fully
  // allocated granules; InvalidOffset if it is not whole granules, NotMapped if any byte of it is
  // not allocated. From then on compact() neither moves nor shares the chunks that `lend_one`
  // exported.
  Result<void> lend(Stretch stretch,
                    const std::function<Result<void>(const ChunkRef&)>& lend_one) const;

  // Adds addresses, without memory, up to the reserved size.
  Result<void> grow(Size capacity);
  Size trim() const { return places_->trim(); }
  Result<void> fence(CUstream stream) { return fences_->add(stream); }
  Result<void> wait_for_fences() { return fences_->wait(); }
  // Until it returns, the caller must not submit work that uses the pool, fenced or not. TimedOut
  // if fences keep coming.
  Result<PoolCompaction> compact();

  ElasticStats stats() const;
  InvariantViolation violation() const;

  // Takes Evictable allocations until `wanted` bytes of physical memory are freed or none are left,
  // and returns the allocations taken. Nothing is allocated at their addresses until reuse() is
  // called for each, so that their owner can be notified first. TimedOut if fences keep coming;
  // nothing is taken then.
  struct Evicted {
    std::vector<Stretch> allocations;
    Size physical = 0;
  };
  Result<Evicted> evict(Size wanted);
  void reuse(Stretch evicted);
  Size evictable_bytes() const;

  // Unmaps all memory but keeps its chunks; addresses stay allocated. Waits for the fences;
  // TimedOut if they keep coming.
  Result<void> park();
  // Maps the chunks again where they were, or new ones if they have been taken.
  Result<Activation> unpark();
  // Releases the chunks of a parked pool. Returns the number of bytes.
  Size drop_parked();
  bool is_parked() const;
  Size parked_bytes() const;

  // Releases everything; nothing can be allocated afterwards. Waits for the fences.
  void close();

 private:
  // Must outlive any work that may still be running.
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

  // Takes the lock once no work behind a fence is running.
  Result<Holding> lock_when_idle(const char* doing);

  // These require the lock.
  Result<void> check_active(const char* doing) const;
  Result<void> check_stretch(const char* doing, Stretch stretch) const;
  Result<void> place(Stretch stretch, AllocationTraits traits);
  enum class Reuse : std::uint8_t { AtOnce, Later };
  Result<Size> remove(Stretch stretch, Reuse when);  // returns the physical memory freed
  Granules granules_of(Stretch stretch) const;
  Granules without_memory(const Granules& granules) const;
  Error conflict(Stretch stretch);
  Granules emptied_by_removing(Stretch stretch) const;
  Stretch of_granule(Size granule) const { return {granule * this->granule(), this->granule()}; }
  Result<std::vector<ChunkRef>> take_chunks(const Granules& granules);
  // Create before a change that takes chunks. Unless it is kept, this guard returns the chunks that
  // were created for the change to the driver.
  auto release_what_was_made() const {
    return Undo{[places = places_.get(), before = places_->kept_bytes()] {
      places->release_beyond(before);
    }};
  }
  // Updates the store's figures after a change of what is allocated or where it lies.
  void count_requested();
  // Recomputes what is really held, after a change failed and perhaps its undo too.
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
  [[gnu::cold]] void plan_moves(CompactionPlan& plan) const;
  void find_emptied(CompactionPlan& plan) const;
  Result<void> plan_separation(CompactionPlan& plan);
  [[gnu::cold]] void plan_sharing(CompactionPlan& plan) const;
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
  std::map<Size, Size> movable_;    // sizes of allocations by offset
  std::map<Size, Size> evictable_;  // the same
  std::vector<Size> physical_at_;   // by place
  Size physical_ = 0;
  std::vector<RequestedBytes> requested_at_;  // by place
  std::vector<MappedChunk> parked_;           // while it is parked and they have not been dropped
  bool parked_is_lost_ = false;
  // The driver refused an undo: some allocated granule has no memory, or a free one has some.
  bool is_damaged_ = false;
  std::shared_ptr<PoolCopies> copies_;  // made when first needed
};

}  // namespace cuvmm
