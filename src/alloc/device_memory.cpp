// SPDX-License-Identifier: Apache-2.0
#include "alloc/device_memory.hpp"

#include <algorithm>
#include <cstring>

#include "base/host_memory.hpp"
#include "driver/device_attribute.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::create(const Driver& driver, int ordinal,
                                                           const MemorySettings& settings) {
  const int maps =
      TRY(device_attribute(driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal,
                           "ask for virtual memory management"));
  if (maps == 0) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "serve memory",
                 .subject = "the device has no virtual memory management"};
  }
  auto memory = std::unique_ptr<DeviceMemory>{new DeviceMemory{driver, ordinal, settings}};
  TRY(memory->probe(driver));
  return memory;
}

// Tests on one granule, once, that the device does as its attributes promise, before a program
// depends on it.
Result<void> DeviceMemory::probe(const Driver& driver) {
  size_t bytes = 0;
  TRY(driver.check(driver.cuDeviceTotalMem(&bytes, ordinal_), "ask for the device's memory"));
  memory_ = bytes;
  granule_ = TRY(granularity_of(driver, location()));
  const int by_fd = device_attribute_or(
      0, driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal_);
  exportable_ = by_fd != 0 ? Export::Yes : Export::No;
  budget_ = std::make_shared<LeasedBudget>(settings_.limit_of(ordinal_, memory_),
                                           static_cast<std::int16_t>(ordinal_));
  CUuuid uuid{};
  if (driver.cuDeviceGetUuid(&uuid, ordinal_) == CUDA_SUCCESS) {
    std::memcpy(uuid_.data(), uuid.bytes, uuid_.size());
  }
  begin_lease();
  TRY(store_.serve(location(), budget_, most_cached()));

  const Reservation place = TRY(Reservation::create(driver, granule_, granule_));
  Mapping mapping = Mapping::of(place);
  auto chunk = Chunk::create(driver, granule_, location(), Export::No);
  // A device that is full right now may still be able to map.
  if (!chunk.ok() && chunk.error().kind == ErrorKind::OutOfMemory) return {};
  if (!chunk.ok()) return chunk.error();
  MapPlan plan;
  plan.map(mapping, 0, ChunkRef::adopt(std::move(*chunk)), AccessSet::of(ordinal_));
  TRY(plan.commit());
  return {};
}

// A device without a UUID cannot be named to the lessor, so it has no lease. The host's lease
// begins with that of the first device.
void DeviceMemory::begin_lease() {
  if (settings_.lessor == nullptr || uuid_ == Lessor::Uuid{}) return;
  settings_.lessor->begin(*budget_, uuid_, memory_);
  if (settings_.host == nullptr || settings_.host->lessor() != nullptr) return;
  settings_.lessor->begin(*settings_.host, Lessor::the_host, total_host_memory());
}

MemoryInfo DeviceMemory::info(const MemoryInfo& of_the_driver, Size cached) const {
  MemoryInfo info{.free = of_the_driver.free + cached, .total = of_the_driver.total};
  const Size limit = budget_->limit();
  if (limit != unlimited) {
    const Size held = budget_->committed_bytes() + budget_->native_bytes();
    const Size live = held > cached ? held - cached : 0;
    info.total = std::min(info.total, limit);
    info.free = std::min(info.free, limit > live ? limit - live : 0);
  }
  info.free = std::min(info.free, info.total);
  return info;
}

void DeviceMemory::reclaim_own(const Error& refused, Size wanted) {
  store_.reclaim(location(), budget_->missing(refused, wanted));
}

Size DeviceMemory::give_back_cached() {
  return store_.reclaim(location(), unlimited);
}

Size DeviceMemory::most_held() const {
  constexpr Size least_spare = 256 * MiB;
  const Size most = most_in_use_.load(std::memory_order_relaxed);
  return saturating_sum(most, std::max(most / 4, least_spare));
}

void DeviceMemory::note_in_use(Size bytes) {
  Size most = most_in_use_.load(std::memory_order_relaxed);
  while (bytes > most && !most_in_use_.compare_exchange_weak(most, bytes)) {
  }
}

Size DeviceMemory::most_cached() const {
  return settings_.cache.is_none() ? unlimited : settings_.cache.of(memory_);
}

}  // namespace cuvmm
