// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "alloc/device_memory.hpp"
#include "vmm/access_set.hpp"

namespace cuvmm {

// Which devices' memory cuvmm serves in this process. A device is tried once: if it cannot be
// served then, it never is. Thread-safe.
class ServedDevices {
 public:
  // Both must outlive this object.
  ServedDevices(const Driver& driver, const MemorySettings& settings)
      : driver_(driver), settings_(settings) {}

  // Serves the device from now on, if it was not tried before. nullptr if the driver serves it.
  DeviceMemory* serve(int ordinal);
  // nullptr if the device is not served, or not yet. Makes no driver call.
  DeviceMemory* find(int ordinal) const;
  std::vector<DeviceMemory*> all() const;

 private:
  enum class Serving : std::uint8_t { Unknown, Ours, Drivers };
  struct Device {
    std::atomic<Serving> serving{Serving::Unknown};
    std::unique_ptr<DeviceMemory> memory;
    std::once_flag search;  // for places to spill to
  };

  DeviceMemory* make(int ordinal);
  void find_places_to_spill(DeviceMemory& memory);
  std::vector<DeviceMemory*> neighbours_to_spill_to(int ordinal);

  const Driver& driver_;
  const MemorySettings& settings_;

  Lock lock_{LockOrder::Devices};  // guards the creation of devices
  std::array<Device, AccessSet::most_devices> devices_;
};

}  // namespace cuvmm
