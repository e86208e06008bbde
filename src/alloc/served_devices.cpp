// SPDX-License-Identifier: Apache-2.0
#include "alloc/served_devices.hpp"

#include "base/log.hpp"

namespace cuvmm {

DeviceMemory* ServedDevices::serve(int ordinal) {
  if (ordinal < 0 || ordinal >= AccessSet::most_devices) return nullptr;
  Device& device = devices_[static_cast<std::size_t>(ordinal)];
  const Serving serving = device.serving.load(std::memory_order_acquire);
  if (serving == Serving::Drivers) return nullptr;
  DeviceMemory* const memory = serving == Serving::Ours ? device.memory.get() : make(ordinal);
  if (memory != nullptr && settings_.spill.to != SpillTo::Off) find_places_to_spill(*memory);
  return memory;
}

DeviceMemory* ServedDevices::make(int ordinal) {
  Device& device = devices_[static_cast<std::size_t>(ordinal)];
  const Holding holding{lock_};
  if (device.serving.load() == Serving::Ours) return device.memory.get();
  if (device.serving.load() == Serving::Drivers) return nullptr;
  auto made = DeviceMemory::create(driver_, ordinal, settings_);
  if (!made.ok()) {
    CUVMM_LOG(Warning, "device %d: %s; cuvmm does not serve its memory", ordinal,
              made.error().text().c_str());
    device.serving.store(Serving::Drivers, std::memory_order_release);
    return nullptr;
  }
  device.memory = std::move(*made);
  device.serving.store(Serving::Ours, std::memory_order_release);
  return device.memory.get();
}

// Holds no lock, because a neighbour may have to be created. Other threads wait until all places
// are known, or a first allocation on a full device would be refused.
void ServedDevices::find_places_to_spill(DeviceMemory& memory) {
  std::call_once(devices_[static_cast<std::size_t>(memory.ordinal())].search, [&] {
    memory.find_places_to_spill(driver_, neighbours_to_spill_to(memory.ordinal()));
  });
}

std::vector<DeviceMemory*> ServedDevices::neighbours_to_spill_to(int ordinal) {
  std::vector<DeviceMemory*> neighbours;
  if (settings_.spill.to == SpillTo::Host) return neighbours;
  std::vector<int> named = settings_.spill_peers.devices;
  int count = 0;
  if (driver_.cuDeviceGetCount(&count) != CUDA_SUCCESS) return neighbours;
  if (named.empty()) {
    for (int other = 0; other < count; ++other) named.push_back(other);
  }
  for (const int other : named) {
    if (other == ordinal || other >= count) continue;
    int reaches = 0;
    if (driver_.cuDeviceCanAccessPeer(&reaches, ordinal, other) != CUDA_SUCCESS) continue;
    if (reaches == 0) continue;
    if (DeviceMemory* const neighbour = make(other)) neighbours.push_back(neighbour);
  }
  return neighbours;
}

DeviceMemory* ServedDevices::find(int ordinal) const {
  if (ordinal < 0 || ordinal >= AccessSet::most_devices) return nullptr;
  const Device& device = devices_[static_cast<std::size_t>(ordinal)];
  return device.serving.load(std::memory_order_acquire) == Serving::Ours ? device.memory.get()
                                                                         : nullptr;
}

std::vector<DeviceMemory*> ServedDevices::all() const {
  std::vector<DeviceMemory*> served;
  for (const Device& device : devices_) {
    if (device.serving.load(std::memory_order_acquire) == Serving::Ours) {
      served.push_back(device.memory.get());
    }
  }
  return served;
}

}  // namespace cuvmm
