// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "alloc/memory_settings.hpp"
#include "vmm/chunk_store.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm {

// A device's memory as reported to the program.
struct MemoryInfo {
  Size free = 0;
  Size total = 0;
};

// One device: its chunks and how many of them this process may hold. Arenas and windows stand on
// it and outlive nothing of it.
class DeviceMemory {
 public:
  // NotSupported where the device cannot map memory, or cannot do what it says: that is tried.
  static Result<std::unique_ptr<DeviceMemory>> create(const Driver& driver, int ordinal,
                                                      const MemorySettings& settings);

  int ordinal() const { return ordinal_; }
  Size granule() const { return granule_; }
  Size memory() const { return memory_; }             // all that the card has
  const Lessor::Uuid& uuid() const { return uuid_; }  // all zero where the driver does not say
  Location location() const { return Location::device(ordinal_); }
  const MemorySettings& settings() const { return settings_; }
  Export exportable() const { return exportable_; }

  // Where its memory goes when it is full, as the settings say: to the neighbours, then to the
  // host. What lies with a neighbour counts against that one's limit too. Says in the log what
  // cannot be had. Once, before the first allocation.
  void find_places_to_spill(const Driver& driver, const std::vector<DeviceMemory*>& neighbours);

  ChunkStore& store() { return store_; }
  const ChunkStore& store() const { return store_; }
  ChunkCounters chunk_counters() const { return store_.counters(location()); }
  LeasedBudget& budget() { return *budget_; }
  const LeasedBudget& budget() const { return *budget_; }
  Size limit() const { return budget_->limit(); }
  // Held by the one thread at a time that lacks memory and reclaims that of others.
  Lock& pressure() { return pressure_; }

  // Free for the program: what the driver says is, what we keep, and no more than the limit leaves.
  // `mapped_free`: bytes that nobody holds although arenas and windows have them mapped.
  MemoryInfo info(const MemoryInfo& of_the_driver, Size mapped_free) const;

  // Gives all that is kept and done back to the driver. Returns how much went.
  Size give_back_cached();
  // What VMM_CACHE lets us keep of it while nobody uses it, mapped or not.
  Size most_cached() const;

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
  Lock pressure_{LockOrder::Pressure};
};

}  // namespace cuvmm
