// SPDX-License-Identifier: Apache-2.0
#include "alloc/granule_starts.hpp"

namespace cuvmm {

// A slot that once held something is never empty again, or searches that passed it would end too
// early. But a record that lies elsewhere by now may be replaced. No two that are placed lie at one
// address, so who is found there was left behind.
void AllocationMap::Granule::put(Table& table, Allocation& allocation) const {
  const CUdeviceptr address = allocation.address();
  std::size_t at = step_of(address);
  while (true) {
    Slot& slot = table.slots[at & (table.capacity - 1)];
    Allocation* there = slot.load(std::memory_order_relaxed);
    if (there == &allocation) break;
    if (there == nullptr) ++table.used;
    if (there == nullptr || there->address() == address || !is_within(there->address())) {
      slot.store(&allocation, std::memory_order_release);
      break;
    }
    ++at;
  }
  if (table.starts) table.starts->set(step_of(address));
}

AllocationMap::Granule::Table& AllocationMap::Granule::table_with_room() {
  Table* table = table_.load(std::memory_order_relaxed);
  if (table != nullptr && table->used * 4 < table->capacity * 3) return *table;
  std::size_t alive = 0;
  const std::size_t capacity = table != nullptr ? table->capacity : 0;
  for (std::size_t i = 0; i < capacity; ++i) {
    const Allocation* there = table->slots[i].load(std::memory_order_relaxed);
    if (there != nullptr && is_within(there->address())) ++alive;
  }
  std::size_t larger = first_capacity;
  while (larger * 3 < (alive + 1) * 6) larger *= 2;
  auto grown = std::make_unique<Table>(larger);
  for (std::size_t i = 0; i < capacity; ++i) {
    Allocation* there = table->slots[i].load(std::memory_order_relaxed);
    if (there != nullptr && is_within(there->address())) put(*grown, *there);
  }
  tables_.push_back(std::move(grown));
  table_.store(tables_.back().get(), std::memory_order_release);
  return *tables_.back();
}

void AllocationMap::Granule::add(Allocation& allocation) {
  put(table_with_room(), allocation);
}

void AllocationMap::Granule::forget(CUdeviceptr begin, CUdeviceptr end) {
  Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || !table->starts || begin >= end) return;
  table->starts->clear(step_of(begin), step_of(end - 1) + 1);
}

std::optional<AllocationMap::Found> AllocationMap::Granule::find_in(const Table& table,
                                                                    CUdeviceptr address) {
  std::size_t at = step_of(address);
  for (std::size_t tried = 0; tried < table.capacity; ++tried, ++at) {
    Allocation* there = table.slots[at & (table.capacity - 1)].load(std::memory_order_acquire);
    if (there == nullptr) return std::nullopt;
    if (there->address() != address) continue;
    const auto facts = there->facts();
    if (facts && facts->address == address) return Found{there, *facts};
  }
  return std::nullopt;
}

std::optional<AllocationMap::Found> AllocationMap::Granule::find_start(CUdeviceptr address) const {
  const Table* table = table_.load(std::memory_order_acquire);
  return table != nullptr ? find_in(*table, address) : std::nullopt;
}

std::optional<AllocationMap::Found> AllocationMap::Granule::last_before(CUdeviceptr address) const {
  const Table* table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return std::nullopt;
  if (table->starts) {
    std::size_t at = is_within(address) ? step_of(address) : steps - 1;
    while ((at = table->starts->last_before(at)) != table->starts->none) {
      if (auto found = find_in(*table, base_ + at * step)) return found;
      if (at-- == 0) break;
    }
    return std::nullopt;
  }
  std::optional<Found> last;
  for (std::size_t i = 0; i < table->capacity; ++i) {
    Allocation* there = table->slots[i].load(std::memory_order_acquire);
    if (there == nullptr) continue;
    const auto facts = there->facts();
    if (!facts || facts->address > address || !is_within(facts->address)) continue;
    if (!last || facts->address > last->facts.address) last = Found{there, *facts};
  }
  return last;
}

}  // namespace cuvmm
