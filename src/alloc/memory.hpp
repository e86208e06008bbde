// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "alloc/held_allocations.hpp"
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
// device that a call refers to, and combines parts that each handle one subject. Thread-safe.
class Memory {  // NOLINT(clang-analyzer-optin.performance.Padding)
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

  HeldAllocations& held() { return held_; }
  const HeldAllocations& held() const { return held_; }
  // See HeldAllocations::find().
  std::optional<AllocationFacts> find(CUdeviceptr address) const { return held_.find(address); }
  // For blocking and imported memory; nullptr for stream-ordered memory.
  CUcontext context_of(const AllocationFacts& facts) const {
    const ContextMemory* const context = facts.context_memory();
    return context != nullptr ? context->context() : facts.importer();
  }
  // Pins the allocation and lets other processes open it (Lending). InvalidArgument if it is not
  // blocking memory of ours, NotSupported if the device cannot export memory.
  struct Lent {
    Lending::Id id;
    Lending::Secret secret;
  };
  Result<Lent> lend(CUdeviceptr address, const Lending::Secret& fresh);
  Lending& lending() { return lending_; }

  const DeviceHoldings& holdings() const { return holdings_; }
  MemoryCounters counters(int device) const { return holdings_.counters(device); }
  InvariantViolation violation() const { return holdings_.violation(); }

  // The program's view of the memory of the current context's device, given the driver's.
  MemoryInfo info(const MemoryInfo& of_the_driver);
  // The same for the device with that UUID; nullopt if it is not served (yet). Makes no driver
  // call.
  std::optional<MemoryInfo> info_of(const Lessor::Uuid& uuid, const MemoryInfo& seen) const;

  // For a forwarded call that failed because the driver has no memory left. Returns true if memory
  // was released to the driver, so that a retry is worthwhile.
  bool make_room() { return reclaim_.make_room(); }

  // Makes `attempt`, in which the program takes `size` bytes of the device from the driver. While
  // the attempt lacks memory, reclaims as for an allocation of ours, and then makes `elsewhere`, if
  // there is one and the device spills. Reports a refusal for lack of memory. Each attempt charges
  // the device's budget itself, and changes nothing if it fails.
  using NativeAttempt = std::function<Result<void>()>;
  Result<void> take_natively(DeviceMemory& device, Size size, const NativeAttempt& attempt,
                             const NativeAttempt& elsewhere);
  // For a block that the program has, of which `missing` bytes have no memory yet: reclaims as for
  // an allocation until `still_lacks`, which tries to give it some, returns false.
  void reclaim_for(DeviceMemory& device, Size missing, const std::function<bool()>& still_lacks);
  // The driver refused device memory of the current device to the program.
  void count_native_refusal();

  // Call after the program has waited for work: applies the pools' release thresholds and
  // VMM_CACHE.
  void program_waited() {
    pools_.program_waited();
    reclaim_.bound_caches();
  }

  // The budget for host memory that pauses and spilling pin.
  const std::shared_ptr<LeasedBudget>& host_budget() const { return settings_.host; }

  ServedDevices& devices() { return devices_; }
  const ServedDevices& devices() const { return devices_; }
  ServedContexts& contexts() { return contexts_; }
  const ServedContexts& contexts() const { return contexts_; }
  ServedPools& pools() { return pools_; }
  NativeMemory& native() { return native_; }
  ProgramWork& work() { return work_; }
  const LiveMovePolicy& live_moves() const { return policy_; }

  bool is_of_current_device(const AllocationFacts& held) const {
    return current_device(dependencies_.driver) == held.device;
  }

  StreamClock& clock() { return dependencies_.clock; }

  // The number of ended pools and contexts that other threads may still be using.
  std::size_t retired_count() const { return retired_.count(); }

 private:
  Answer refuse(Error error, Size asked, const DeviceMemory& device,
                const MemoryPressure& pressure);
  // `serve()` returns the pool; nullptr if the driver serves it.
  template <class Serve>
  Answer allocate_from(const Serve& serve, CUdeviceptr* address, Size size, StreamState& stream);
  Answer free_now(const AllocationMap::Found& found);
  void end_blocking(const AllocationMap::Found& found, const FreeTicket& ticket);
  Answer free_later(const AllocationMap::Found& found);
  Answer free_blocking(const AllocationMap::Found& found);

  const Dependencies dependencies_;
  MemorySettings settings_;  // immutable after construction
  HeldAllocations held_{dependencies_.driver};
  Lending lending_;
  ServedDevices devices_{dependencies_.driver, settings_};
  NativeMemory native_{dependencies_.driver, settings_, devices_};
  LiveMovePolicy policy_{dependencies_, settings_.compact};
  ServedContexts contexts_{{dependencies_, policy_, devices_, lending_, retired_}};
  ServedPools pools_{{dependencies_, settings_, policy_, devices_, retired_}};
  const DeviceHoldings holdings_{devices_, contexts_, pools_};
  DeviceReclaim reclaim_{{dependencies_, settings_, devices_, pools_, holdings_, lending_}};
  ProgramWork work_{dependencies_, settings_.free, reclaim_};
  Retired retired_;  // contexts, and pools whose addresses are gone
};

}  // namespace cuvmm
