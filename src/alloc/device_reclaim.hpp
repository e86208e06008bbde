// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "alloc/device_holdings.hpp"
#include "alloc/lending.hpp"

namespace cuvmm {

// Reclaims device memory from all that this process holds there: for an allocation that lacks
// memory, and to keep what is cached within VMM_CACHE. Call with no lock held. Thread-safe.
class DeviceReclaim {
 public:
  // All of it must outlive this object.
  struct Parts {
    const MemoryDependencies& dependencies;
    const MemorySettings& settings;
    ServedDevices& devices;
    const ServedPools& pools;
    const DeviceHoldings& holdings;
    const Lending& lending;
  };
  explicit DeviceReclaim(const Parts& parts)
      : parts_(parts), settings_(parts.settings), clock_(parts.dependencies.clock) {}

  // Whether an attempt failed for lack of memory.
  template <class Made>
  static bool may_help(const Result<Made>& made) {
    return !made.ok() && made.error().kind == ErrorKind::OutOfMemory;
  }
  // Whether retry() also moves live stream-ordered memory, or the attempt does.
  enum class Compacts : std::uint8_t { Here, InAttempt };
  // Whether retry() also waits for a larger lease.
  enum class Lease : std::uint8_t { Awaited, NotAwaited };
  // Retries an allocation of `size` bytes while others release memory: one kind of memory may lack
  // the bytes that another kind caches, or that pending work still uses. `still_lacks` makes an
  // attempt, and returns whether it failed for lack of memory.
  void retry(DeviceMemory& device, Size size, MemoryPressure& pressure, Compacts compacts,
             Lease lease, const std::function<bool()>& still_lacks);

  // Returns spare memory of all devices to the driver, since a call may need memory of another
  // device than the current one. Returns whether there is more room now, whoever made it.
  bool make_room();
  // Releases memory that the device caches beyond VMM_CACHE and that no work uses any longer.
  void bound_cache(DeviceMemory& device);
  void bound_caches();  // of all devices
  // After an allocation that took more memory from the driver: without VMM_CACHE, releases what
  // blocking ones left, as far as the device now holds more than DeviceMemory::most_held().
  void bound_growth(DeviceMemory& device);

 private:
  bool reclaim_everywhere(const DeviceMemory& device, Size wanted, std::uint64_t until);
  bool make_room_on(DeviceMemory& device);
  bool compact(const DeviceMemory& device, Size wanted, std::uint64_t until);
  Size room_on(const DeviceMemory& device) const;
  Size reclaim_from_others(const DeviceMemory& device, Size wanted);
  Size reclaim_where_it_spills(const DeviceMemory& device, Size wanted);

  const Parts parts_;
  const MemorySettings& settings_;
  StreamClock& clock_;
};

}  // namespace cuvmm
