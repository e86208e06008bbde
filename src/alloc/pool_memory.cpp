// SPDX-License-Identifier: Apache-2.0
#include "alloc/pool_memory.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/undo.hpp"

namespace cuvmm {
namespace {

// Addresses cost next to nothing, but their number is limited.
constexpr Size large_reserves = 8;  // times the device's memory
constexpr Size small_reserves = 2;
constexpr Size striped_reserves = 16;  // small blocks lie in stripes of chunks

// Whether blocks are laid so that their memory can be shared under pressure, which costs time when
// memory is plentiful.
bool spreads(const DeviceMemory& device, const Compactor* compactor) {
  return compactor != nullptr && device.settings().compact == Compact::All;
}

Result<std::unique_ptr<Arena>> create_arena(const Driver& driver, DeviceMemory& device,
                                            StreamOrder& order, Compactor* compactor, Size reserves,
                                            const char* what) {
  const Size whole = round_up(device.memory(), device.granule());
  ArenaSettings settings{
      .what = what,
      .device = device.ordinal(),
      .granule = device.granule(),
      .reserve = whole * reserves + round_up(device.most_spilled(), device.granule()),
      .reserve_least = whole,
      .access = AccessSet::of(device.ordinal()),
      .grow = device.settings().grow,
      .device_memory = device.memory(),
      .wait = device.settings().wait,
      .compactor = compactor,
      .spreads = spreads(device, compactor)};
  if (const Size chunk = device.settings().chunk; chunk != 0) {
    settings.smallest_chunk = chunk;
    settings.chunks.largest = chunk;
  }
  return Arena::create(driver, device.store(), order, settings);
}

}  // namespace

Result<std::unique_ptr<PoolMemory>> PoolMemory::create(const Driver& driver, DeviceMemory& device,
                                                       StreamOrder& order, CUmemoryPool handle,
                                                       Compactor* compactor) {
  auto pool = std::unique_ptr<PoolMemory>{new PoolMemory{driver, device, order, handle}};
  pool->large_ =
      TRY(create_arena(driver, device, pool->order_, compactor, large_reserves, "stream-ordered"));
  pool->small_ = TRY(create_arena(driver, device, pool->order_, compactor,
                                  spreads(device, compactor) ? striped_reserves : small_reserves,
                                  "stream-ordered, below 1 MiB"));
  return pool;
}

Result<Allocation*> PoolMemory::allocate(Size asked, StreamId stream, MemoryPressure& pressure) {
  Block* block = TRY(arena_for(asked).allocate(asked, stream, pressure));
  // The program may free it before it asks what was reserved.
  reserved_.raise(round_up(used_.add(asked), device_.granule()));
  return block;
}

void PoolMemory::free(Allocation& allocation, const FreeTicket& ticket) {
  take_back(allocation, static_cast<Block&>(allocation).asked(), ticket);
}

void PoolMemory::take_back(Allocation& allocation, Size asked, const FreeTicket& ticket) {
  auto& block = static_cast<Block&>(allocation);
  used_.take(asked);
  arena_of(block).free(block, ticket);
}

Size PoolMemory::could_share(Size wanted) {
  const Size large = large_->could_share(wanted);
  return large < wanted ? large + small_->could_share(wanted - large) : large;
}

Result<Size> PoolMemory::share(Size wanted, const CopyBy& copy) {
  const Size large = TRY(large_->share(wanted, copy));
  if (large >= wanted) return large;
  const Result<Size> small = small_->share(wanted - large, copy);
  if (!small.ok() && large == 0) return small;
  return large + (small.ok() ? *small : 0);
}

// What the driver's pool gives these devices, and what the memory gives to all others.
Result<AccessSet> PoolMemory::access_of_the_drivers(std::span<const int> devices) const {
  AccessSet access = this->access();
  for (const int device : devices) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    TRY(driver_.check(driver_.cuMemPoolGetAccess(&flags, handle_, &location),
                      "ask which devices may use a pool"));
    const Access given = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::ReadWrite
                         : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::Read
                                                                     : Access::None;
    access = access.with(device, given);
  }
  return access;
}

void PoolMemory::give_the_drivers(std::span<const int> devices, const AccessSet& access) const {
  AccessSet named;
  AccessSet wanted;
  for (const int device : devices) {
    named = named.with(device);
    wanted = wanted.with(device, access.of_device(device));
  }
  const AccessChange change{named, wanted};
  const auto given = driver_.check(
      driver_.cuMemPoolSetAccess(handle_, change.lines().data(), change.lines().size()),
      "undo a change of a pool's access");
  if (!given.ok()) CUVMM_LOG(Warning, "%s", given.error().text().c_str());
}

// The driver's pool says what the access is after all changes so far, so the last of several
// threads that come here leaves the access of all of them.
Result<void> PoolMemory::follow_access(std::span<const int> devices) {
  if (devices.empty()) return {};
  const Holding holding{access_lock_};
  Undo undo{[&, before = access()] { give_the_drivers(devices, before); }};
  TRY(set_access(TRY(access_of_the_drivers(devices))));
  undo.keep();
  return {};
}

Result<void> PoolMemory::set_access(const AccessSet& access) {
  const AccessSet before = large_->access();
  TRY(large_->set_access(access));
  const auto given = small_->set_access(access);
  // Undo: revoking access that was just granted should succeed.
  if (!given.ok()) static_cast<void>(large_->set_access(before).ok());
  return given;
}

AccessSet PoolMemory::access() const {
  return large_->access();
}

std::uint64_t PoolMemory::moved_chunks() const {
  return large_->counters().moved_chunks + small_->counters().moved_chunks;
}

std::uint64_t PoolMemory::compacted_granules() const {
  return large_->counters().compacted_granules + small_->counters().compacted_granules;
}

Moved PoolMemory::moved() const {
  const ArenaCounters large = large_->counters();
  const ArenaCounters small = small_->counters();
  return {
      large.moved_chunks + large.compacted_granules + small.moved_chunks + small.compacted_granules,
      large.moved + large.compacted + small.moved + small.compacted};
}

Size PoolMemory::trim(Size keep) {
  static_cast<void>(reserved());  // raises the high mark before there is less
  const Size small = small_->mapped_bytes();
  large_->trim(keep > small ? keep - small : 0);
  const Size large = large_->mapped_bytes();
  small_->trim(keep > large ? keep - large : 0);
  return reserved();
}

Size PoolMemory::mapped() const {
  return large_->mapped_bytes() + small_->mapped_bytes();
}

// After a wait, memory beyond the release threshold counts as released. It stays mapped, as free
// device memory subject to VMM_CACHE, so that reusing it costs nothing.
void PoolMemory::program_waited() {
  static_cast<void>(reserved());  // raises the high mark before there is less
  const Size now = mapped();
  const Size keeps = std::max(threshold_.load(), round_up(used(), device_.granule()));
  set_aside_.store(now > keeps ? now - keeps : 0);
}

Size PoolMemory::reserved() const {
  const Size now = mapped();
  const Size aside = std::min(set_aside_.load(), now);
  const Size reserved = std::min(now, std::max(now - aside, round_up(used(), device_.granule())));
  reserved_.raise(reserved);
  return reserved;
}

Size PoolMemory::reserved_high() const {
  static_cast<void>(reserved());
  return reserved_.high();
}

Size PoolMemory::mapped_free() const {
  const Size spilled = spilled_free();
  const Size all = mapped() - std::min(spilled, mapped());
  const Size held = used();
  return all > held ? all - held : 0;
}

Size PoolMemory::release(Size wanted) {
  static_cast<void>(reserved());  // raises the high mark before there is less
  const Size gone = large_->release(wanted);
  return gone < wanted ? gone + small_->release(wanted - gone) : gone;
}

bool PoolMemory::settle_end() {
  if (!ended_.load() || used() != 0) return false;
  const bool large_ended = large_->end_if_empty();
  return small_->end_if_empty() && large_ended;
}

InvariantViolation PoolMemory::violation() const {
  if (auto violation = large_->violation()) return violation;
  return small_->violation();
}

}  // namespace cuvmm
