// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "alloc/memory_pressure.hpp"
#include "alloc/memory_settings.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm {

// A device's memory as reported to the program.
struct MemoryInfo {
  Size free = 0;
  Size total = 0;
};

// One device: its chunks, and the limit on them in this process. Must outlive all arenas and
// windows of the device.
class DeviceMemory {
 public:
  // Maps one granule to check that the device does what its attributes promise. NotSupported if it
  // cannot map memory.
  static Result<std::unique_ptr<DeviceMemory>> create(const Driver& driver, int ordinal,
                                                      const MemorySettings& settings);

  int ordinal() const { return ordinal_; }
  Size granule() const { return granule_; }
  Size memory() const { return memory_; }              // total memory of the card
  Size most_spilled() const { return most_spilled_; }  // the most that may lie elsewhere
  const std::vector<DeviceMemory*>& spills_to() const { return spills_to_; }
  const Lessor::Uuid& uuid() const { return uuid_; }  // all zero if the driver does not report it
  Location location() const { return Location::device(ordinal_); }
  const MemorySettings& settings() const { return settings_; }
  Export exportable() const { return exportable_; }

  // Sets up where memory goes when the device is full, as the settings say: to the neighbours, then
  // to the host. Memory on a neighbour counts against that neighbour's limit too. Logs what is not
  // available. Call once, before the first allocation.
  void find_places_to_spill(const Driver& driver, const std::vector<DeviceMemory*>& neighbours);

  ChunkStore& store() { return store_; }
  const ChunkStore& store() const { return store_; }
  ChunkCounters chunk_counters() const { return store_.counters(location()); }
  LeasedBudget& budget() { return *budget_; }
  const LeasedBudget& budget() const { return *budget_; }
  Size limit() const { return budget_->limit(); }
  // The budget that bounds chunks which the program creates itself; nullptr if there is neither a
  // limit nor a lease.
  LeasedBudget* bound() const {
    const bool is_bounded = budget_->own_limit() != unlimited || budget_->lessor() != nullptr;
    return is_bounded ? budget_.get() : nullptr;
  }
  // Held by a thread that lacks memory while it reclaims from others: one thread at a time.
  PressureTurns& turns() { return turns_; }

  // The free memory that the program sees: the driver's and what we cache, but no more than the
  // limit leaves. `cached`: the device's unused memory.
  MemoryInfo info(const MemoryInfo& of_the_driver, Size cached) const;

  // Releases unused memory of cuvmm's own, so that `wanted` bytes that were refused can be taken
  // from the driver.
  void reclaim_own(const Error& refused, Size wanted);
  // Returns to the driver all cached memory that no work uses. Returns how many bytes that was.
  Size give_back_cached();
  // How much unused memory VMM_CACHE lets us keep, mapped or not.
  Size most_cached() const;
  // How much memory we may hold once an allocation has taken more: what was in use at the peak and
  // a quarter more, which lets sizes vary. Programs beside this one count on the rest.
  Size most_held() const;
  void note_in_use(Size bytes);

 private:
  DeviceMemory(const Driver& driver, int ordinal, const MemorySettings& settings)
      : ordinal_(ordinal), settings_(settings), store_(driver) {}

  Result<void> probe(const Driver& driver);
  void begin_lease();
  Result<void> spill_to(const Driver& driver, DeviceMemory& neighbour,
                        const std::shared_ptr<Budget>& budget);
  Result<void> spill_to_host(const Driver& driver, const std::shared_ptr<Budget>& budget);
  Result<void> serve_spilled(const Driver& driver, Location where, std::shared_ptr<Budget> budget);

  const int ordinal_;
  const MemorySettings settings_;
  Size granule_ = 0;
  Size memory_ = 0;
  Lessor::Uuid uuid_{};
  Export exportable_ = Export::No;
  std::shared_ptr<LeasedBudget> budget_;
  ChunkStore store_;
  PressureTurns turns_;
  Size most_spilled_ = 0;
  std::vector<DeviceMemory*> spills_to_;
  std::atomic<Size> most_in_use_{0};  // whenever more was taken from the driver
};

}  // namespace cuvmm
