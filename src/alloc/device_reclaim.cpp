// SPDX-License-Identifier: Apache-2.0
#include "alloc/device_reclaim.hpp"

#include <algorithm>

#include "base/not_cancelled.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

// Holds no lock of an arena or of windows, so it may wait for those locks, which a reclaim may not.
void DeviceReclaim::retry(DeviceMemory& device, Size size, MemoryPressure& pressure,
                          Compacts compacts, Lease lease,
                          const std::function<bool()>& still_lacks) {
  constexpr int most_attempts = 16;  // other threads may be faster each time
  const std::uint64_t until = pressure.until();
  const bool is_leased = lease == Lease::Awaited && device.budget().lessor() != nullptr;
  const std::uint64_t longest =
      is_leased ? std::max(until, pressure.until(settings_.node_wait)) : until;
  const Size wanted = round_up(size, device.granule());
  const NotCancelled whole;
  PressureTurns::Turn turn{device.turns()};
  for (int attempts = 1;; ++attempts) {
    // Without a turn, only memory that others have released meanwhile can help.
    if (!turn.take(longest)) {
      static_cast<void>(still_lacks());
      return;
    }
    const MemoryInHand::Watch watch{device.store().in_hand()};
    pressure.tried.add(ReclaimSteps::OtherOwners);
    const bool gained = reclaim_everywhere(device, wanted, until);
    if (!still_lacks()) return;
    if (attempts == 1 && compacts == Compacts::Here && compact(device, wanted, until)) continue;
    if (now_ns() >= longest) return;
    if (gained && attempts < most_attempts) continue;
    if (!gained && watch.others_held_any() && now_ns() < until) {
      --attempts;
      rest_us(100);
      continue;
    }
    if (lease == Lease::NotAwaited) return;
    if (is_leased) {
      // So that the lease need only grow by what this process lacks.
      device.give_back_cached();
      pressure.tried.add(ReclaimSteps::Lease);
    }
    turn.give_back();
    bool was_freed_here = false;
    const auto is_wanted = [&] {
      was_freed_here =
          device.chunk_counters().physical_free + parts_.holdings.mapped_free(device.ordinal()) >=
          wanted;
      return !was_freed_here;
    };
    // An extra granule, for a block that does not end at a chunk boundary.
    const bool has_more =
        device.budget().wait_for_more(wanted + device.granule(), until, longest, is_wanted) ||
        was_freed_here || device.budget().wait_for_more(wanted, until, longest, is_wanted);
    if (has_more || was_freed_here) continue;
    // `cuvmm pause` may have stopped this thread until long after the wait was over.
    static_cast<void>(still_lacks());
    return;
  }
}

// Returns whether work ended or memory was released, so that another attempt may succeed.
bool DeviceReclaim::reclaim_everywhere(const DeviceMemory& device, Size wanted,
                                       std::uint64_t until) {
  parts_.lending.catch_up();
  const bool some_work_ended = clock_.wait_for_frees(device.ordinal(), until);
  const Size excess = device.budget().excess();
  Size released = parts_.holdings.release(device.ordinal(), saturating_sum(wanted, excess));
  if (released < wanted) released += reclaim_from_others(device, wanted - released);
  if (released < wanted) released += reclaim_where_it_spills(device, wanted - released);
  return some_work_ended || released != 0;
}

// Moves live stream-ordered memory for a request of another kind.
bool DeviceReclaim::compact(const DeviceMemory& device, Size wanted, std::uint64_t until) {
  const Size needed = saturating_sum(wanted, device.budget().excess());
  const Size room = room_on(device);
  if (room >= needed) return false;
  Compactor* const compactor = parts_.pools.compactor_of(device.ordinal());
  return compactor != nullptr && compactor->make_room(needed - room, no_stream, until);
}

// The bytes that can be taken now: what the store keeps free, and what the limit and the driver
// have left.
Size DeviceReclaim::room_on(const DeviceMemory& device) const {
  const Driver& driver = parts_.dependencies.driver;
  const Size held = device.budget().held_bytes();
  Size left = device.memory() - std::min(device.memory(), held);
  const bool is_current = current_device(driver) == device.ordinal();
  if (is_current) left = free_memory(driver).value_or(left);
  return std::min(left, device.budget().available()) + device.chunk_counters().physical_free;
}

// Reclaims memory on this device that other devices spilled to it and no longer use.
Size DeviceReclaim::reclaim_from_others(const DeviceMemory& device, Size wanted) {
  Size gone = 0;
  if (settings_.spill.to == SpillTo::Off) return gone;
  for (DeviceMemory* const other : parts_.devices.all()) {
    if (other == &device || gone >= wanted) continue;
    clock_.ask_about_frees(other->ordinal());
    gone += other->store().reclaim(device.location(), wanted - gone);
  }
  return gone;
}

// Reclaims what the devices to which this one spills hold and do not use.
Size DeviceReclaim::reclaim_where_it_spills(const DeviceMemory& device, Size wanted) {
  Size gone = 0;
  for (DeviceMemory* const other : device.spills_to()) {
    if (gone >= wanted) break;
    clock_.ask_about_frees(other->ordinal());
    parts_.holdings.release(other->ordinal(), wanted - gone);
    gone += other->store().reclaim(other->location(), wanted - gone);
  }
  return gone;
}

bool DeviceReclaim::make_room() {
  parts_.lending.catch_up();
  bool has_room = false;
  for (DeviceMemory* const device : parts_.devices.all()) has_room |= make_room_on(*device);
  return has_room;
}

// Room that another thread makes is room for this one, too.
bool DeviceReclaim::make_room_on(DeviceMemory& device) {
  const MemoryInHand::Watch watch{device.store().in_hand()};
  PressureTurns::Turn turn{device.turns()};
  const bool waits_for_another = !turn.take(0);
  if (waits_for_another) static_cast<void>(turn.take(now_ns() + in_ns(settings_.wait)));
  clock_.ask_about_frees(device.ordinal());
  parts_.holdings.release(device.ordinal(), unlimited);
  const Size released = device.give_back_cached() + reclaim_from_others(device, unlimited);
  return released != 0 || waits_for_another || watch.others_held_any();
}

// Mapped memory is cheaper to reuse than the store's free chunks, so those go first. Mapped memory
// that is released becomes free in the store, which is then trimmed to the rest of the bound.
void DeviceReclaim::bound_cache(DeviceMemory& device) {
  const Size most = device.most_cached();
  if (most == unlimited || parts_.dependencies.captures.any()) return;
  const Size mapped = parts_.holdings.mapped_free(device.ordinal());
  if (mapped > most) parts_.holdings.release(device.ordinal(), mapped - most);
  const Size still = parts_.holdings.mapped_free(device.ordinal());
  device.store().trim(device.location(), most - std::min(still, most));
}

// Reads first what is cached: if another thread releases memory in between, the peak lacks it for
// now, instead of including it permanently.
void DeviceReclaim::bound_growth(DeviceMemory& device) {
  if (!settings_.cache.is_none() || parts_.dependencies.captures.any()) return;
  const auto excess_of = [&](const ChunkCounters& chunks) {
    const Size held = chunks.physical_in_use + chunks.physical_free;
    return held - std::min(held, device.most_held());
  };
  const Size cached = parts_.holdings.blocking_free(device.ordinal());
  const ChunkCounters before = device.chunk_counters();
  device.note_in_use(before.physical_in_use - std::min(cached, before.physical_in_use));
  const Size excess = excess_of(before);
  if (excess == 0) return;
  if (excess > before.physical_free) {
    parts_.holdings.release_cheap(device.ordinal(), excess - before.physical_free);
  }
  const ChunkCounters now = device.chunk_counters();
  device.store().trim(device.location(),
                      now.physical_free - std::min(now.physical_free, excess_of(now)));
}

void DeviceReclaim::bound_caches() {
  if (settings_.cache.is_none()) return;
  for (DeviceMemory* const device : parts_.devices.all()) bound_cache(*device);
}

}  // namespace cuvmm
