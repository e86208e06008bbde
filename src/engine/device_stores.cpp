// SPDX-License-Identifier: Apache-2.0
#include "engine/device_stores.hpp"

namespace cuvmm {

Result<int> DeviceStores::device_count() {
  constexpr const char* doing = "look for devices";
  // Hold no lock here: the driver may call back during initialization.
  TRY(driver_.check(driver_.cuInit(0), doing));
  int count = 0;
  TRY(driver_.check(driver_.cuDeviceGetCount(&count), doing));
  if (count == 0) {
    return Error{.kind = ErrorKind::NotSupported, .doing = doing, .subject = "there is none"};
  }
  return count;
}

Result<DeviceMemory*> DeviceStores::device(int ordinal) {
  const int count = TRY(device_count());
  if (ordinal < 0 || ordinal >= count || ordinal >= AccessSet::most_devices) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "take memory of a device",
                 .subject = "there is no such device",
                 .asked = static_cast<Size>(ordinal),
                 .available = static_cast<Size>(count),
                 .counts = true};
  }
  if (memory_ != nullptr) {
    DeviceMemory* const served = memory_->devices().serve(ordinal);
    if (served != nullptr) return served;
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "take memory of a device",
                 .subject = "it cannot map memory"};
  }
  const Holding holding{lock_};
  auto& device = devices_[static_cast<std::size_t>(ordinal)];
  if (device == nullptr) device = TRY(DeviceMemory::create(driver_, ordinal, settings_));
  return device.get();
}

Result<ChunkStore*> DeviceStores::host(int node) {
  TRY(device_count());
  const Holding holding{lock_};
  auto& store = hosts_[node];
  if (store != nullptr) return store.get();
  auto made = std::make_unique<ChunkStore>(driver_);
  TRY(made->serve(Location::host(node), std::make_shared<LocalBudget>()));
  store = std::move(made);
  return store.get();
}

void DeviceStores::trim() {
  const auto trim_one = [](DeviceMemory& device) { device.store().trim(device.location(), 0); };
  if (memory_ != nullptr) {
    for (DeviceMemory* const device : memory_->devices().all()) trim_one(*device);
  }
  const Holding holding{lock_};
  for (const auto& device : devices_) {
    if (device != nullptr) trim_one(*device);
  }
  for (const auto& [node, store] : hosts_) store->trim(Location::host(node), 0);
}

}  // namespace cuvmm
