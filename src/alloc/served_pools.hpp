// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "alloc/device_compactor.hpp"
#include "alloc/pool_memory.hpp"
#include "alloc/retired.hpp"
#include "alloc/served_devices.hpp"

namespace cuvmm {

// The program's pools and their memory. The driver serves those that can be shared with other
// processes, lie on the host, or have a limit of their own. Thread-safe.
class ServedPools {
 public:
  // All of it must outlive this object.
  struct Parts {
    const MemoryDependencies& dependencies;
    const MemorySettings& settings;
    const LiveMovePolicy& policy;
    ServedDevices& devices;
    Retired& retired;  // takes pools whose addresses are gone
  };
  explicit ServedPools(const Parts& parts) : parts_(parts), driver_(parts.dependencies.driver) {}

  // Serves the pool from now on. nullptr if the driver serves it.
  PoolMemory* serve(CUmemoryPool handle);
  // The current pool of the device.
  PoolMemory* serve_current(int ordinal);

  void created(CUmemoryPool handle, const CUmemPoolProps& properties);
  // The records of a pool that is about to end. They leave before the driver ends the pool, since
  // the driver may then give the handle to a new one. stayed() puts them back if the driver
  // refuses.
  class Leaving;
  Leaving about_to_end(CUmemoryPool handle);
  void ended(Leaving pool);
  void stayed(Leaving pool);
  void current_changed();
  // Call after the program has waited for work: applies the pools' release thresholds.
  void program_waited();

  // Moves live memory of the device's pools. nullptr if cuvmm serves none of them.
  Compactor* compactor_of(int ordinal) const;
  // Calls `visit(PoolMemory&)` for each pool of the device, including those that the program has
  // ended, since their memory lives on.
  template <class Visit>
  void for_each(int ordinal, Visit visit) const {
    const Reading reading{lock_};
    for (const auto& [handle, pool] : pools_) {
      if (pool->device().ordinal() == ordinal) visit(*pool);
    }
    for (const auto& pool : ended_) {
      if (pool->device().ordinal() == ordinal) visit(*pool);
    }
  }
  // Waits for no lock: does nothing if a thread is using the pools.
  void trace_holdings() const;
  InvariantViolation violation() const;

 private:
  struct PoolsOfDevice {
    std::unique_ptr<DeviceCompactor> compactor;  // from the first pool on
    std::atomic<PoolMemory*> current{nullptr};
    std::atomic<bool> current_is_known{false};
  };

  PoolMemory* make(CUmemoryPool handle, int ordinal);
  void settle_ended();
  int device_of_default_pool(CUmemoryPool handle) const;

  using Pools = std::unordered_map<CUmemoryPool, std::unique_ptr<PoolMemory>>;
  using Created = std::unordered_map<CUmemoryPool, int>;

  const Parts parts_;
  const Driver& driver_;

  mutable SharedLock lock_{LockOrder::Pools};  // guards what follows
  std::array<PoolsOfDevice, AccessSet::most_devices> of_devices_;
  Pools pools_;                                     // from the first use on
  Created created_;                                 // those that we serve, and the device of each
  std::vector<std::unique_ptr<PoolMemory>> ended_;  // may still hold memory
  std::atomic<std::uint64_t> changes_{0};           // written under the lock
};

class ServedPools::Leaving {
  friend class ServedPools;
  Created::node_type created;
  Pools::node_type memory;
};

}  // namespace cuvmm
