// SPDX-License-Identifier: Apache-2.0
// Where a device's memory goes when the device is full.
#include <algorithm>

#include "alloc/device_memory.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "driver/device_attribute.hpp"
#include "vmm/available_host_budget.hpp"

namespace cuvmm {
namespace {

constexpr const char* letting_spill = "let memory spill";

// The budget of one device at another device or on the host: limited by how much the device may
// spill, and by how much the place may hold.
class SpillBudget final : public Budget {
 public:
  SpillBudget(std::shared_ptr<Budget> spilled, std::shared_ptr<Budget> of_the_place)
      : spilled_(std::move(spilled)), of_the_place_(std::move(of_the_place)) {}

  void note_native(Size) override {}  // native memory is never noted with this budget
  void forget_native(Size) override {}
  Size native_bytes() const override { return 0; }
  Size available() const override {
    return std::min(spilled_->available(), of_the_place_->available());
  }
  Size excess() const override { return std::max(spilled_->excess(), of_the_place_->excess()); }

 private:
  bool grant(Size size) override {
    if (!grant_of(*spilled_, size)) return false;
    if (grant_of(*of_the_place_, size)) return true;
    take_back_of(*spilled_, size);
    return false;
  }
  void take_back(Size size) override {
    take_back_of(*of_the_place_, size);
    take_back_of(*spilled_, size);
  }

  const std::shared_ptr<Budget> spilled_;
  const std::shared_ptr<Budget> of_the_place_;
};

Error not_supported(const char* why) {
  return {.kind = ErrorKind::NotSupported, .doing = letting_spill, .subject = why};
}

}  // namespace

void DeviceMemory::find_places_to_spill(const Driver& driver,
                                        const std::vector<DeviceMemory*>& neighbours) {
  const SpillTo to = settings_.spill.to;
  if (to == SpillTo::Off) return;
  const SizeLimit& limit = settings_.spill.limit;
  const auto budget =
      std::make_shared<LocalBudget>(limit.is_none() ? unlimited : limit.of(memory_));
  const auto note = [&](const Result<void>& outcome, Size memory, const char* where) {
    if (outcome.ok()) {
      most_spilled_ = std::min(saturating_sum(most_spilled_, memory), budget->limit());
      return;
    }
    CUVMM_LOG(Warning, "device %d: %s; nothing spills to %s", ordinal_,
              outcome.error().text().c_str(), where);
  };
  if (to != SpillTo::Host) {
    for (DeviceMemory* neighbour : neighbours) {
      const auto outcome = spill_to(driver, *neighbour, budget);
      if (outcome.ok()) spills_to_.push_back(neighbour);
      note(outcome, neighbour->memory(),
           ("device " + std::to_string(neighbour->ordinal())).c_str());
    }
    if (neighbours.empty() && to == SpillTo::Peer) {
      CUVMM_LOG(Warning, "device %d: no peer device is accessible; spilling is off", ordinal_);
    }
  }
  if (to != SpillTo::Peer) note(spill_to_host(driver, budget), total_host_memory(), "the host");
}

Result<void> DeviceMemory::spill_to(const Driver& driver, DeviceMemory& neighbour,
                                    const std::shared_ptr<Budget>& budget) {
  return serve_spilled(driver, neighbour.location(),
                       std::make_shared<SpillBudget>(budget, neighbour.budget_));
}

Result<void> DeviceMemory::spill_to_host(const Driver& driver,
                                         const std::shared_ptr<Budget>& budget) {
  const int maps_host = TRY(
      device_attribute(driver, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                       ordinal_, letting_spill));
  if (maps_host == 0) return not_supported("the device cannot map memory of the host");
  // -1 if the host has no NUMA nodes, or the driver does not report one.
  const int node = device_attribute_or(-1, driver, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal_);
  const auto within = settings_.host == nullptr
                          ? std::shared_ptr<Budget>{budget}
                          : std::make_shared<SpillBudget>(budget, settings_.host);
  return serve_spilled(driver, Location::host(std::max(node, 0)),
                       std::make_shared<AvailableHostBudget>(within, settings_.available_on_host));
}

Result<void> DeviceMemory::serve_spilled(const Driver& driver, Location where,
                                         std::shared_ptr<Budget> budget) {
  const Size granule = TRY(granularity_of(driver, where));
  if (!is_multiple(granule_, granule)) return not_supported("its granules are larger");
  return store_.serve_spilled(where, std::move(budget));
}

}  // namespace cuvmm
