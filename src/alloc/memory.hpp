// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "alloc/allocation_map.hpp"
#include "alloc/context_memory.hpp"
#include "alloc/lending.hpp"
#include "alloc/native_memory.hpp"
#include "alloc/pool_memory.hpp"
#include "alloc/retired.hpp"
#include "stream/gate.hpp"
#include "stream/stream_clock.hpp"
#include "stream/submission_epoch.hpp"

namespace cuvmm {

// One device, at one moment.
struct MemoryCounters {
  Size requested_live = 0;  // what the program asked for and holds
  Size mapped_free = 0;     // nobody's, although arenas and windows have it mapped
  Size native = 0;          // taken of the driver past us; 0 without a limit
  ChunkCounters chunks;
  Moved moved;
  Size physical_held() const {
    return chunks.physical_in_use + chunks.physical_free + chunks.physical_unreleased;
  }
};

// What the program is answered; nothing where the call is the driver's own business.
using Answer = std::optional<CUresult>;

// The memory that a program is served in this process: which context, pool and device a call means,
// which of them are ours to serve, and every allocation that the program holds. Everything may be
// called from any thread.
class Memory {
 public:
  // What is known of the program's work. All of it outlives the memory.
  struct Dependencies {
    const Driver& driver;
    StreamClock& clock;
    Captures& captures;
    Gate& gate;
    SubmissionEpoch& submission_epoch;
    // Whether every call that submits work comes by us.
    std::function<bool()> sees_everything;
  };
  Memory(const Dependencies& dependencies, const MemorySettings& settings);
  ~Memory();

  // Blocking memory of the current context.
  Answer allocate(CUdeviceptr* address, Size size, const GrowHint& grow_hint = {});
  Answer allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                        unsigned element);
  Answer free(CUdeviceptr address);

  // Stream-ordered memory, of the given pool or else of the current one of the stream's device.
  Answer allocate_ordered(CUdeviceptr* address, Size size, StreamName stream);
  Answer allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool pool, StreamName stream);
  Answer free_ordered(CUdeviceptr address, StreamName stream);
  // Or nothing is known of it.
  bool is_capturing(StreamName stream) const;

  // Resizing (src/resize). The allocation that begins there.
  std::optional<AllocationMap::Found> find_start(CUdeviceptr address) const;
  // Before a blocking free of the context's memory: what could touch it is done. False where that
  // cannot be said, or not without a wait that the program did not ask for.
  bool wait_before_free(ContextMemory& context);
  // Exactly one of all who try gets it.
  bool try_release(const AllocationMap::Found& found);
  bool sees_everything() const { return dependencies_.sees_everything(); }
  // By somebody whom we do not see, for transfers past the driver (VMM_COMPACT).
  bool may_be_registered_by_address() const;
  // As far as is known without a look at every descriptor of the process.
  bool is_known_to_register_by_address() const;
  bool has_lost_a_context() const { return context_is_lost_.load(std::memory_order_relaxed); }

  // The allocation of ours that holds the byte. By a thread that has passed a threshold, until it
  // needs the owner no more: else that may go meanwhile (Retired).
  std::optional<AllocationFacts> find(CUdeviceptr address) const;
  // nullptr where it is not of a pool, or of a context, of ours.
  const PoolMemory* pool_of(const AllocationFacts& facts) const;
  const ContextMemory* context_of(const AllocationFacts& facts) const;
  // Of blocking memory and of what was opened; nullptr for stream-ordered memory.
  CUcontext context_handle_of(const AllocationFacts& facts) const;
  // It may not be moved any more. False where the program does not hold it.
  bool pin(CUdeviceptr address, std::uint8_t why);
  // Other processes may have it (Lending) from now on, and it stays where it is. InvalidArgument
  // for what is not blocking memory of ours, NotSupported where the device gives nothing away.
  struct Lent {
    Lending::Id id;
    Lending::Secret secret;
  };
  Result<Lent> lend(CUdeviceptr address, const Lending::Secret& fresh);
  Lending& lending() { return lending_; }
  // Memory of another process, mapped here: found like any other, and never freed. The record
  // outlives this.
  void list_opened(Allocation& record, CUdeviceptr address, Size size, CUcontext context);
  void unlist_opened(Allocation& record);
  // All work of the context is done, or the driver's reason why not.
  Result<void> wait_for_work_of(CUcontext context);
  // Of the devices that may use the context's blocking memory.
  AccessSet access_to(CUcontext context) const;

  // Blocking memory of another context, in copies. False: one context owns all of it.
  bool has_several_owners() const { return has_several_owners_.load(std::memory_order_relaxed); }
  // These devices may use it from now on, as far as they can.
  void let_reach(const AllocationFacts& held, const AccessSet& devices);
  // Whether the current context might use it for more than copies.
  bool may_use(const AllocationFacts& held) const;

  // Copies and sets of the allocation are to be done when their calls return.
  void set_sync_memops(CUdeviceptr address, bool on);
  bool has_sync_memops() const { return sync_memops_.load(std::memory_order_relaxed) != 0; }

  MemoryCounters counters(int device) const;
  // Of all contexts and pools of the device, those that have ended included.
  std::vector<RegionUse> regions(int device) const;
  // What each arena and the windows hold, to the trace. For a process that ends: waits for nobody.
  void tell_trace() const;

  // The program's view of the current context's device, given the driver's.
  MemoryInfo info(const MemoryInfo& of_the_driver);
  // Of the device with that UUID; nothing where it is not served (yet). Calls no driver.
  std::optional<MemoryInfo> info_of(const Lessor::Uuid& uuid, const MemoryInfo& seen) const;

  // The driver has reported that a context is lost. From then on it is asked for everything
  // new, so that the program hears of it wherever it would.
  void context_is_lost() { context_is_lost_.store(true, std::memory_order_relaxed); }

  // What the program has taken of the driver past us, of the current device or of that one.
  // Counted where there is a limit.
  bool counts_native_memory() const { return counts_native_memory_; }
  void took_natively(const NativeMemory::Name& name, Size size);
  void took_natively(const NativeMemory::Name& name, Size size, int device);
  void refers_natively_to(const NativeMemory::Name& name);
  // Before it is given back, since the name may be another's right after. What counts no longer.
  std::optional<NativeMemory::Taken> gives_back_natively(const NativeMemory::Name& name);

  // The driver has no memory left for a call that we forward: true where something was given back,
  // so that it is worth trying again.
  bool make_room();

  // After a wait of the program's: pools go back to what they are told to keep, devices to
  // VMM_CACHE.
  void program_waited();

  // Pools. nullptr where the driver serves the pool.
  PoolMemory* pool(CUmemoryPool handle);
  void pool_created(CUmemoryPool handle, const CUmemPoolProps& properties);
  void pool_ended(CUmemoryPool handle);
  void current_pool_changed();

  // Contexts. A handle that ended is the driver's to answer for, until it begins again.
  void context_began(CUcontext context);
  void context_ended(CUcontext context);
  // The context that a green one is used by. Its memory is the driver's, which counts it as that of
  // the device's primary context and keeps it when the green one ends.
  void green_context_began(CUgreenCtx green, CUcontext context);
  // nullptr where the program has not asked for one.
  CUcontext context_of(CUgreenCtx green) const;
  // Before or after the driver's answer: memory of `of` may be used by the device of `by`, or not.
  Result<void> peer_access_begins(CUcontext by, CUcontext of);
  void peer_access_ends(CUcontext by, CUcontext of);

  // The chunks behind what the program holds of a device, one that blocks share as often.
  std::vector<HeldChunk> held_on(int ordinal) const;
  // All memory of a device's that is served here is asked to leave (alloc/departure.hpp). No call
  // of the program's is under way, and none of its work.
  void begin_eviction(int ordinal, EvictionSet& evicted);
  // A context that is as good as any for copies on the device; nullptr where none is known.
  CUcontext some_context_on(int ordinal) const;
  // For all work of all contexts, since each may use memory of any: the driver copies between them
  // unasked. False where it was not done by then.
  bool wait_for_everything(std::uint64_t until);
  std::vector<DeviceMemory*> served_devices() const;
  // Memory elsewhere that is mapped for the device, and nobody's.
  Size spilled_free_on(int ordinal) const;

  // What pauses and spilling pin of the host's memory counts there.
  const std::shared_ptr<LeasedBudget>& host_budget() const { return settings_.host; }

  // nullptr where the driver serves the device.
  DeviceMemory* device_memory(int ordinal) { return device(ordinal); }

  bool is_of_current_device(const AllocationFacts& held) const {
    return current_device() == held.device;
  }

  StreamClock& clock() { return dependencies_.clock; }

  InvariantViolation violation() const;
  // Pools and contexts that have ended and that other threads may still look at.
  std::size_t retired_count() const { return retired_.count(); }

 private:
  class QuiescedContext;  // the Quiescence of a context
  struct ServedContext;

  enum class Serving : std::uint8_t { Unknown, Ours, Drivers };
  struct Device {
    std::atomic<Serving> serving{Serving::Unknown};
    std::unique_ptr<DeviceMemory> memory;
    std::atomic<bool> has_places{false};  // to spill to, as far as there are any
    std::atomic<PoolMemory*> current_pool{nullptr};
    std::atomic<bool> current_pool_is_known{false};
  };
  struct PeerAccess {
    CUcontext by;  // nullptr: the program has not enabled it, but copies
    CUcontext of;
    int device;  // of `by`
  };

  DeviceMemory* device(int ordinal);
  DeviceMemory* make_device(int ordinal);
  void find_places_to_spill(DeviceMemory& memory);
  std::vector<DeviceMemory*> neighbours_to_spill_to(int ordinal);
  int current_device() const;  // -1 where there is none
  ContextMemory* context(CUcontext handle);
  PoolMemory* current_pool(int device);
  PoolMemory* make_pool(CUmemoryPool handle, int ordinal);
  void settle_ended_pools();
  int device_of_default_pool(CUmemoryPool handle) const;
  AccessSet access_to(CUcontext context, int device) const;

  // Of what is still served.
  std::optional<AllocationMap::Found> find_holder(CUdeviceptr address) const;

  void give(Allocation& allocation, CUdeviceptr* address, const Allocation::Holding& holding);
  // Tries again as long as others release something: what one kind of memory keeps, or still
  // waits for, may be what another lacks.
  template <class Attempt>
  Result<Allocation*> retry_under_pressure(DeviceMemory& device, Size size, Attempt attempt);
  Size reclaim_from_others(const DeviceMemory& device, Size wanted);
  Size release_on(const DeviceMemory& device, Size wanted);
  // Gives back what the device keeps beyond VMM_CACHE and no work uses any more.
  void bound_cache(DeviceMemory& device);
  Answer refuse(const Error& error, Size asked, const DeviceMemory& device);
  Answer allocate_from(PoolMemory* pool, CUdeviceptr* address, Size size, StreamState& stream);
  Answer free_now(const AllocationMap::Found& found);
  void end_blocking(const AllocationMap::Found& found, const FreeTicket& ticket);
  Answer free_later(const AllocationMap::Found& found);
  Answer free_blocking(const AllocationMap::Found& found);
  Result<void> wait_for_work_of(ContextMemory& context);
  CUresult wait_for_the_current_context();
  CUresult free_as_the_driver_does();
  bool is_dead(CUcontext context) const;
  bool may_move_live_memory() const;
  Size mapped_free_on(int device) const;
  // `visit(const ContextMemory&)`, `visit(const PoolMemory&)`; pools that ended among them, since
  // their memory lives on.
  template <class Visit>
  void for_each_context(int device, Visit visit) const;
  template <class Visit>
  void for_each_pool(int device, Visit visit) const;

  const Dependencies dependencies_;
  MemorySettings settings_;  // immutable after construction
  const bool counts_native_memory_;
  AllocationMap map_;
  Lending lending_;
  NativeMemory native_;
  std::atomic<int> sync_memops_{0};  // allocations that are told so
  std::atomic<bool> context_is_lost_{false};

  Lock devices_lock_{LockOrder::Devices};  // guards the making of devices
  std::array<Device, AccessSet::most_devices> devices_;

  mutable SharedLock contexts_lock_{LockOrder::Contexts};  // guards what follows
  std::unordered_map<CUcontext, std::unique_ptr<ServedContext>> contexts_;
  std::unordered_map<CUgreenCtx, CUcontext> green_contexts_;
  std::unordered_set<CUcontext> dead_;
  std::atomic<std::size_t> dead_count_{0};
  std::vector<PeerAccess> peer_access_;
  std::atomic<bool> has_several_owners_{false};  // written under the lock

  mutable SharedLock pools_lock_{LockOrder::Pools};                      // guards what follows
  std::unordered_map<CUmemoryPool, std::unique_ptr<PoolMemory>> pools_;  // from the first use on
  std::unordered_map<CUmemoryPool, int>
      created_pools_;  // that are ours to serve, and on which device
  std::vector<std::unique_ptr<PoolMemory>> ended_pools_;  // that may still hold something
  std::atomic<std::uint64_t> pool_changes_{0};            // written under the lock

  Retired retired_;  // contexts, and pools whose addresses are gone

  // Far from the driver's; and, written by every allocation, from what every copy reads.
  std::atomic<std::uint64_t> last_buffer_id_{std::uint64_t{1} << 40};
};

}  // namespace cuvmm
