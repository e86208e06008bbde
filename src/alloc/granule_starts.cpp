// SPDX-License-Identifier: Apache-2.0
#include "alloc/granule_starts.hpp"

#include <array>
#include <new>

namespace cuvmm {
namespace {

constexpr Size step = 512;
constexpr unsigned bits_of_a_granule = 21;
constexpr std::size_t steps = (Size{1} << bits_of_a_granule) / step;

// Chosen so that tables fill the heap's size classes. Larger tables double in size.
constexpr std::array<std::size_t, 3> first_capacities{5, 13, 32};
constexpr std::size_t few = first_capacities.back();

std::size_t step_of(CUdeviceptr address) {
  return (address / step) % steps;
}

bool is_same_granule(CUdeviceptr a, CUdeviceptr b) {
  return a >> bits_of_a_granule == b >> bits_of_a_granule;
}

// A record and its place in the granule, in one word, so that a search reads only matching records.
class Entry {
 public:
  Entry() = default;
  explicit Entry(std::uint64_t word) : word_(word) {}
  Entry(Allocation& allocation, std::size_t at)
      : word_(reinterpret_cast<std::uintptr_t>(&allocation) | std::uint64_t{at} << address_bits) {}

  std::uint64_t word() const { return word_; }
  bool is_empty() const { return word_ == 0; }
  std::size_t at() const { return word_ >> address_bits; }
  Allocation* allocation() const {
    return reinterpret_cast<Allocation*>(word_ & ((std::uint64_t{1} << address_bits) - 1));
  }

 private:
  // Of host pointers. A program gets longer ones only if it asks for them by a hint.
  static constexpr unsigned address_bits = 48;
  std::uint64_t word_ = 0;
};
static_assert(steps <= std::size_t{1} << 16);

}  // namespace

// Followed in memory by its slots and, if there are many, by the bit line.
struct AllocationMap::Granule::Table {
  using Slot = std::atomic<std::uint64_t>;
  using Starts = BitLine<steps>;
  static_assert(alignof(Starts) <= alignof(Slot) && sizeof(Slot) == 8);

  static Table* make(std::size_t capacity, Table* older) {
    const std::size_t bytes =
        sizeof(Table) + capacity * sizeof(Slot) + (capacity > few ? sizeof(Starts) : 0);
    auto* table = new (::operator new(bytes)) Table{static_cast<std::uint32_t>(capacity), 0, older};
    for (std::size_t i = 0; i < capacity; ++i) new (table->slots() + i) Slot{0};
    if (capacity > few) new (table->slots() + capacity) Starts;
    return table;
  }
  static void end(Table* table) {
    while (table != nullptr) {
      Table* const older = table->older;
      ::operator delete(table);
      table = older;
    }
  }

  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(this + 1); }
  // nullptr if there are few slots.
  Starts* starts() {
    return capacity > few ? reinterpret_cast<Starts*>(slots() + capacity) : nullptr;
  }
  const Starts* starts() const { return const_cast<Table*>(this)->starts(); }

  Entry entry(std::size_t at) const {
    return Entry{slots()[at % capacity].load(std::memory_order_acquire)};
  }
  // Whether the entry's record has been placed elsewhere since. `address` is any address of this
  // granule.
  static bool is_stale(const Entry& entry, CUdeviceptr address) {
    const CUdeviceptr now = entry.allocation()->address();
    return !is_same_granule(now, address) || step_of(now) != entry.at();
  }
  enum class Room : std::uint8_t { Usual, Last };
  bool may_take_empty(Room room) const {
    if (capacity <= few || room == Room::Last) return used < capacity;
    return std::size_t{used} * 4 < std::size_t{capacity} * 3;
  }
  // Returns false if there is no room.
  bool put(Allocation& allocation, CUdeviceptr address, Room room);
  std::size_t count_alive(CUdeviceptr address) const;
  std::optional<Found> find(CUdeviceptr address) const;

  const std::uint32_t capacity;
  std::uint32_t used;
  Table* const older;
};

// A used slot never becomes empty again, or searches that passed it would end too early. But a
// stale entry may be replaced. No two placed allocations begin at the same address, so an entry
// found for this address is stale too.
bool AllocationMap::Granule::Table::put(Allocation& allocation, CUdeviceptr address, Room room) {
  const std::size_t place = step_of(address);
  for (std::size_t tried = 0; tried < capacity; ++tried) {
    const Entry there = entry(place + tried);
    if (there.is_empty()) {
      if (!may_take_empty(room)) return false;
      ++used;
    } else if (there.at() != place && !is_stale(there, address)) {
      continue;
    }
    slots()[(place + tried) % capacity].store(Entry{allocation, place}.word(),
                                              std::memory_order_release);
    if (starts() != nullptr) starts()->set(place);
    return true;
  }
  return false;
}

std::size_t AllocationMap::Granule::Table::count_alive(CUdeviceptr address) const {
  std::size_t alive = 0;
  for (std::size_t i = 0; i < capacity; ++i) {
    const Entry there = entry(i);
    if (!there.is_empty() && !is_stale(there, address)) ++alive;
  }
  return alive;
}

std::optional<AllocationMap::Found> AllocationMap::Granule::Table::find(CUdeviceptr address) const {
  const std::size_t place = step_of(address);
  // With a slot for each place, none is in another's.
  const std::size_t most = capacity >= steps ? 1 : capacity;
  for (std::size_t tried = 0; tried < most; ++tried) {
    const Entry there = entry(place + tried);
    if (there.is_empty()) return std::nullopt;
    if (there.at() != place) continue;
    const auto facts = there.allocation()->facts();
    if (facts && facts->address == address) return Found{there.allocation(), *facts};
  }
  return std::nullopt;
}

AllocationMap::Granule::~Granule() {
  Table::end(table());
}

Allocation* AllocationMap::Granule::alone() const {
  const std::uintptr_t what = what_.load(std::memory_order_acquire);
  return (what & is_table) == 0 ? reinterpret_cast<Allocation*>(what) : nullptr;
}

AllocationMap::Granule::Table* AllocationMap::Granule::table() const {
  const std::uintptr_t what = what_.load(std::memory_order_acquire);
  return (what & is_table) != 0 ? reinterpret_cast<Table*>(what & ~is_table) : nullptr;
}

// Replaces the table by a larger one that has everything that begins in the granule of `address`,
// and room for as many again.
void AllocationMap::Granule::grow(CUdeviceptr address, std::size_t alive) {
  Table* const full = table();
  const std::size_t before = full != nullptr ? full->capacity : 1;
  std::size_t capacity = 2 * few;
  while (capacity <= before || capacity < 2 * (alive + 1)) capacity *= 2;
  for (auto size = first_capacities.rbegin(); size != first_capacities.rend(); ++size) {
    if (*size > alive && *size > before) capacity = *size;
  }
  Table* const grown = Table::make(capacity, full);
  // An owner may be placing its record elsewhere right now, so read each record's address once.
  const auto take_along = [&](Allocation& there) {
    const CUdeviceptr now = there.address();
    if (is_same_granule(now, address)) grown->put(there, now, Table::Room::Last);
  };
  if (full == nullptr) {
    take_along(*alone());
  } else {
    for (std::size_t i = 0; i < full->capacity; ++i) {
      const Entry there = full->entry(i);
      if (!there.is_empty() && !Table::is_stale(there, address)) take_along(*there.allocation());
    }
  }
  what_.store(reinterpret_cast<std::uintptr_t>(grown) | is_table, std::memory_order_release);
}

// The table grows with the number of live allocations only, however often they are placed
// elsewhere.
void AllocationMap::Granule::add(Allocation& allocation) {
  const CUdeviceptr address = allocation.address();
  Table* const here = table();
  if (here == nullptr) {
    const Allocation* const there = alone();
    if (there == nullptr || there == &allocation || there->address() == address ||
        !is_same_granule(there->address(), address)) {
      what_.store(reinterpret_cast<std::uintptr_t>(&allocation), std::memory_order_release);
      return;
    }
    grow(address, 1);
  } else {
    if (here->put(allocation, address, Table::Room::Usual)) return;
    const std::size_t alive = here->count_alive(address);
    if (alive * 2 < here->capacity && here->put(allocation, address, Table::Room::Last)) {
      return;
    }
    grow(address, alive);
  }
  // Now there is room, unless records that were placed meanwhile have taken it.
  while (!table()->put(allocation, address, Table::Room::Last)) grow(address, table()->capacity);
}

void AllocationMap::Granule::forget(CUdeviceptr begin, CUdeviceptr end) {
  Table* const here = table();
  if (here == nullptr || here->starts() == nullptr || begin >= end) return;
  here->starts()->clear(step_of(begin), step_of(end - 1) + 1);
}

std::optional<AllocationMap::Found> AllocationMap::Granule::find_start(CUdeviceptr address) const {
  const std::uintptr_t what = what_.load(std::memory_order_acquire);
  if (what == 0) return std::nullopt;
  if ((what & is_table) != 0) return reinterpret_cast<Table*>(what & ~is_table)->find(address);
  auto* const there = reinterpret_cast<Allocation*>(what);
  const auto facts = there->facts();
  if (!facts || facts->address != address) return std::nullopt;
  return Found{there, *facts};
}

std::optional<AllocationMap::Found> AllocationMap::Granule::last_before(CUdeviceptr base,
                                                                        Search& search) const {
  const CUdeviceptr address = search.address();
  const std::uintptr_t what = what_.load(std::memory_order_acquire);
  if (what == 0) return std::nullopt;
  std::optional<Found> last;
  const auto look_at = [&](Allocation& there) {
    const auto facts = there.facts();
    if (!facts || facts->address > address || !is_same_granule(facts->address, base)) return;
    if (!last || facts->address > last->facts.address) last = Found{&there, *facts};
  };
  if ((what & is_table) == 0) {
    look_at(*reinterpret_cast<Allocation*>(what));
    if (!last) search.pass();
    return last;
  }
  const auto& here = *reinterpret_cast<const Table*>(what & ~is_table);
  if (const auto* const starts = here.starts()) {
    std::size_t at = is_same_granule(address, base) ? step_of(address) : steps - 1;
    while ((at = starts->last_before(at)) != Table::Starts::none) {
      if (auto found = here.find(base + at * step)) return found;
      search.pass();
      if (search.is_in_vain() || at-- == 0) break;
    }
    return std::nullopt;
  }
  for (std::size_t i = 0; i < here.capacity; ++i) {
    if (Allocation* const there = here.entry(i).allocation()) look_at(*there);
  }
  if (!last) search.pass(here.capacity);
  return last;
}

}  // namespace cuvmm
