// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "alloc/allocation_map.hpp"
#include "alloc/lending.hpp"
#include "alloc/live_move_policy.hpp"
#include "alloc/native_memory.hpp"
#include "alloc/program_work.hpp"
#include "alloc/retired.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// The answer to the program; nullopt if the driver must handle the call.
using Answer = std::optional<CUresult>;

// The memory that cuvmm serves to the program in this process. It resolves the context, pool and
// device that a call refers to, knows which of them we serve, and tracks every allocation that the
// program holds. Thread-safe.
class Memory {
 public:
  using Dependencies = MemoryDependencies;
  Memory(const Dependencies& dependencies, const MemorySettings& settings);
  ~Memory();

  // Allocates blocking memory of the current context.
  Answer allocate(CUdeviceptr* address, Size size, const GrowHint& grow_hint = {});
  Answer allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                        unsigned element);
  Answer free(CUdeviceptr address);

  // Allocates stream-ordered memory, from the given pool or else from the current pool of the
  // stream's device.
  Answer allocate_ordered(CUdeviceptr* address, Size size, StreamName stream);
  Answer allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool pool, StreamName stream);
  Answer free_ordered(CUdeviceptr address, StreamName stream);

  // For resizing (src/resize). Finds the allocation that begins at `address`.
  std::optional<AllocationMap::Found> find_start(CUdeviceptr address) const;
  // Of several concurrent attempts, exactly one succeeds.
  bool try_release(const AllocationMap::Found& found);
  const LiveMovePolicy& live_moves() const { return policy_; }

  // Finds the allocation of ours that contains the byte. The calling thread must be inside a call
  // barrier for as long as it uses the owner, which may otherwise be destroyed (Retired).
  std::optional<AllocationFacts> find(CUdeviceptr address) const;
  // For blocking and imported memory; nullptr for stream-ordered memory.
  CUcontext context_of(const AllocationFacts& facts) const;
  // The allocation does not move from now on. Returns false if the program does not hold it.
  bool pin(CUdeviceptr address, std::uint8_t why);
  // Pins the allocation and lets other processes open it (Lending). InvalidArgument if it is not
  // blocking memory of ours, NotSupported if the device cannot export memory.
  struct Lent {
    Lending::Id id;
    Lending::Secret secret;
  };
  Result<Lent> lend(CUdeviceptr address, const Lending::Secret& fresh);
  Lending& lending() { return lending_; }
  // Lists memory of another process that is mapped here: lookups find it, and frees refuse it.
  // `record` must outlive this object.
  void list_opened(Allocation& record, CUdeviceptr address, Size size, CUcontext context);
  void unlist_opened(Allocation& record);

  // SYNC_MEMOPS: copies and sets of the allocation must be complete when their calls return.
  void set_sync_memops(CUdeviceptr address, bool on);
  bool has_sync_memops() const { return sync_memops_.load(std::memory_order_relaxed) != 0; }

  const DeviceHoldings& holdings() const { return holdings_; }
  MemoryCounters counters(int device) const { return holdings_.counters(device); }
  InvariantViolation violation() const { return holdings_.violation(); }

  // The program's view of the memory of the current context's device, given the driver's.
  MemoryInfo info(const MemoryInfo& of_the_driver);
  // The same for the device with that UUID; nullopt if it is not served (yet). Makes no driver
  // call.
  std::optional<MemoryInfo> info_of(const Lessor::Uuid& uuid, const MemoryInfo& seen) const;

  ProgramWork& work() { return work_; }
  NativeMemory& native() { return native_; }

  // For a forwarded call that failed because the driver has no memory left. Returns true if memory
  // was released to the driver, so that a retry is worthwhile.
  bool make_room() { return reclaim_.make_room(); }

  // Call after the program has waited for work: applies the pools' release thresholds and
  // VMM_CACHE.
  void program_waited() {
    pools_.program_waited();
    reclaim_.bound_caches();
  }

  ServedPools& pools() { return pools_; }
  ServedContexts& contexts() { return contexts_; }
  const ServedContexts& contexts() const { return contexts_; }

  // The budget for host memory that pauses and spilling pin.
  const std::shared_ptr<LeasedBudget>& host_budget() const { return settings_.host; }

  ServedDevices& devices() { return devices_; }
  const ServedDevices& devices() const { return devices_; }

  bool is_of_current_device(const AllocationFacts& held) const {
    return current_device(dependencies_.driver) == held.device;
  }

  StreamClock& clock() { return dependencies_.clock; }

  // The number of ended pools and contexts that other threads may still be using.
  std::size_t retired_count() const { return retired_.count(); }

 private:
  // Finds only memory that is still served.
  std::optional<AllocationMap::Found> find_holder(CUdeviceptr address) const;

  void give(Allocation& allocation, CUdeviceptr* address, const Allocation::Holding& holding);
  Answer refuse(Error error, Size asked, const DeviceMemory& device,
                const MemoryPressure& pressure);
  Answer allocate_from(PoolMemory* pool, CUdeviceptr* address, Size size, StreamState& stream);
  Answer free_now(const AllocationMap::Found& found);
  void end_blocking(const AllocationMap::Found& found, const FreeTicket& ticket);
  Answer free_later(const AllocationMap::Found& found);
  Answer free_blocking(const AllocationMap::Found& found);

  const Dependencies dependencies_;
  MemorySettings settings_;  // immutable after construction
  AllocationMap map_;
  Lending lending_;
  std::atomic<int> sync_memops_{0};  // allocations with SYNC_MEMOPS

  ServedDevices devices_{dependencies_.driver, settings_};
  NativeMemory native_{dependencies_.driver, settings_, devices_};

  LiveMovePolicy policy_{dependencies_, settings_.compact};
  ServedContexts contexts_{{dependencies_, policy_, devices_, lending_, retired_}};

  ServedPools pools_{{dependencies_, settings_, policy_, devices_, retired_}};
  const DeviceHoldings holdings_{devices_, contexts_, pools_};
  DeviceReclaim reclaim_{{dependencies_, settings_, devices_, pools_, holdings_}};
  ProgramWork work_{dependencies_, settings_.free, reclaim_};

  Retired retired_;  // contexts, and pools whose addresses are gone

  // The IDs start far above the driver's. Every allocation writes this, so it lies apart from the
  // members that every copy reads.
  std::atomic<std::uint64_t> last_buffer_id_{std::uint64_t{1} << 40};
};

}  // namespace cuvmm
