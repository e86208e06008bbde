// SPDX-License-Identifier: Apache-2.0
#include "spill/placement.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "driver/current_context.hpp"
#include "spill/spill_ahead.hpp"

namespace cuvmm {
namespace {

constexpr const char* placing = "put memory where it is used";

constexpr std::uint64_t us = 1000;
constexpr std::uint64_t ms = 1000 * us;
constexpr std::uint64_t second = 1000 * ms;

// A tenth of the bandwidth of the link to the host.
constexpr Size allowed_a_second = 4 * GiB;
constexpr Size most_allowance = 16 * GiB;
constexpr Size least_worth_a_stop = 64 * MiB;

constexpr std::uint64_t least_rest = 50 * ms;

constexpr std::uint64_t until_judged = 2 * second;
constexpr std::uint64_t most_patience = 64 * second;

// Of chunks on the device. A chunk that blocks share is listed for each of them.
Size near_bytes(const std::vector<HeldChunk>& held, int device) {
  std::unordered_set<CUmemGenericAllocationHandle> counted;
  Size bytes = 0;
  for (const HeldChunk& one : held) {
    const bool is_near = residency(one.where, device) == Residency::Near;
    if (is_near && counted.insert(one.chunk).second) bytes += one.size;
  }
  return bytes;
}

}  // namespace

void Placement::refill_allowance(Seen& seen, std::uint64_t now) {
  const std::uint64_t passed = std::min(now - std::min(seen.looked_at, now), 4 * second);
  seen.allowance =
      std::min(most_allowance, seen.allowance + allowed_a_second / 1000 * (passed / us) / 1000);
  seen.looked_at = now;
}

// Unless the move has halved the spilled memory in use, the working set changes faster than it can
// be moved, so the next move waits longer.
void Placement::assess_last_move(Seen& seen, std::uint64_t now) {
  if (seen.assess_at == 0 || now < seen.assess_at) return;
  seen.assess_at = 0;
  if (seen.used_far > seen.used_far_before / 2) {
    seen.patience = std::clamp(seen.patience * 2, second, most_patience);
    seen.not_before = now + seen.patience;
  } else {
    seen.patience = 0;
  }
}

// The whole chunks that the program already has and that hold none of its memory. The free parts of
// other chunks cannot take any.
Size Placement::ready_near(const Seen& seen, const DeviceMemory& device) {
  const ChunkCounters chunks = device.chunk_counters();
  return chunks.physical_free + chunks.physical_in_use -
         std::min(seen.held_near, chunks.physical_in_use);
}

// What the device and the limit still have for the program.
Size Placement::not_taken(const DeviceMemory& device) const {
  Size held = device.budget().held_bytes();
  // Without a bound, the budget does not count the program's own chunks.
  const bool are_uncounted = program_.chunks != nullptr && device.bound() == nullptr;
  if (are_uncounted) held += program_.chunks->near_bytes(device.ordinal());
  const Size limit = std::min(device.limit(), device.memory());
  return limit > held ? limit - held : 0;
}

Size Placement::free_near(const Seen& seen, const DeviceMemory& device, Room room) const {
  if (room == Room::InStore) return device.chunk_counters().physical_free;
  const Size ready = ready_near(seen, device);
  return room == Room::Ready ? ready : ready + not_taken(device);
}

// The device's free memory beyond a reserve for its working set.
Size Placement::room_near(const Seen& seen, const DeviceMemory& device) const {
  constexpr Size to_work_with = 4;
  const Size room = free_near(seen, device, Room::WithinLimit);
  const Size kept = std::min(device.limit(), device.memory()) / to_work_with;
  return room > kept ? room - kept : 0;
}

// Lists the memory held on the device, and has its uses recorded from now on.
std::vector<HeldChunk> Placement::take_stock(Seen& seen, const DeviceMemory& device) {
  std::vector<HeldChunk> held = program_.memory.holdings().chunks(device.ordinal());
  seen.held_near = near_bytes(held, device.ordinal());
  const std::size_t first_own = held.size();
  if (program_.chunks != nullptr) program_.chunks->list_held(device.ordinal(), held);
  join_unnamed(held, first_own);
  for (const HeldChunk& one : held) uses_.cover(one.blocks, one.blocks_size);
  seen.stays.look(held, uses_.now());
  return held;
}

// A tensor may span many of the program's chunks, while calls name only its start. So a chunk in
// which no address was ever named belongs to the block that begins before it.
void Placement::join_unnamed(std::vector<HeldChunk>& held, std::size_t first) const {
  for (std::size_t i = first + 1; i < held.size(); ++i) {
    const HeldChunk& before = held[i - 1];
    HeldChunk& one = held[i];
    const bool follows = before.address + before.size == one.address;
    if (!follows || uses_.last_within(one.address, one.size) != 0) continue;
    one.blocks = before.blocks;
    one.blocks_size = before.blocks_size + one.size;
  }
}

void Placement::begin_moving(const DeviceMemory& device, const BetterPlaces& places,
                             EvictionSet& evicted) {
  program_.memory.holdings().begin_eviction(device.ordinal(), evicted);
  if (program_.chunks == nullptr) return;
  const auto wants = [&places](const ProgramChunk& chunk) {
    return places.change.contains(chunk.key());
  };
  programs_ =
      std::make_unique<ProgramEviction>(program_.driver, *program_.chunks, device.ordinal(), wants);
  programs_->begin_moving(evicted);
}

BetterPlaces Placement::find_cold(Seen& seen, DeviceMemory& device, Size wanted) {
  std::vector<PlacedChunk> chunks =
      with_last_uses(take_stock(seen, device), uses_, seen.stays, device.ordinal());
  for (PlacedChunk& one : chunks) one.last = std::max(one.last, uses_.last_unseen());
  return find_cold_places(std::move(chunks), uses_.now(),
                          std::min(wanted, device.store().spill_room()));
}

Size Placement::cold(const DeviceMemory& device) const {
  const auto seen = seen_.find(device.ordinal());
  return seen != seen_.end() ? seen->second.cold : 0;
}

Result<Size> Placement::move_out(DeviceMemory& device, Size wanted, Duration within) {
  Seen& seen = seen_[device.ordinal()];
  const BetterPlaces places = find_cold(seen, device, wanted);
  seen.cold = 0;  // until the next look
  if (!places.are_any()) return Size{0};
  const auto patience = static_cast<std::uint64_t>(std::chrono::nanoseconds{within}.count());
  return TRY(change(device, places, patience, patience)).out;
}

bool Placement::move_near(DeviceMemory& device, std::span<const AddressRange> ranges,
                          Duration within) {
  if (is_stuck()) return false;
  const std::uint64_t until =
      now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds{within}.count());
  // What seems to be free may be used by contexts and other processes, or wait for pending work.
  for (const Room room : {Room::WithinLimit, Room::Ready, Room::InStore}) {
    const Result<bool> done = bring_near(device, ranges, room, until);
    if (is_stuck()) return false;
    if (done.ok() && *done) return true;
    if (done.ok() || done.error().kind == ErrorKind::OutOfMemory) continue;
    CUVMM_LOG(Info, "%s", done.error().text().c_str());
    return false;
  }
  return false;
}

// Returns whether all of them are on the device now.
Result<bool> Placement::bring_near(DeviceMemory& device, std::span<const AddressRange> ranges,
                                   Room room, std::uint64_t until) {
  Seen& seen = seen_[device.ordinal()];
  const std::vector<HeldChunk> held = take_stock(seen, device);
  std::unordered_set<CUmemGenericAllocationHandle> named;
  for (const HeldChunk& one : held) {
    const auto overlaps = [&one](const AddressRange& range) { return range.overlaps(one); };
    if (std::none_of(ranges.begin(), ranges.end(), overlaps)) continue;
    named.insert(one.chunk);
    uses_.note(one.blocks);  // so that it does not leave again for the next copy's memory
  }
  bool are_near = true;
  bool some_stay = false;
  for (const HeldChunk& one : held) {
    if (!named.contains(one.chunk) || residency(one.where, device.ordinal()) != Residency::Far)
      continue;
    are_near = false;
    some_stay |= one.stays;
  }
  if (are_near) return true;
  const BetterPlaces places = find_places_near(
      named, with_last_uses(held, uses_, seen.stays, device.ordinal()),
      {.room_near = free_near(seen, device, room), .room_far = device.store().spill_room()});
  if (!places.are_any()) return false;
  const std::uint64_t now = now_ns();
  const std::uint64_t patience = until > now ? until - now : 0;
  const Migration::Moved moved = TRY(change(device, places, patience, patience));
  return moved.in == places.in && !some_stay;
}

Placement::Attention Placement::step(DeviceMemory& device, std::uint64_t now) {
  if (is_stuck() && !restore()) return Attention::Uses;
  ChunkStore& store = device.store();
  if (!store.spills() || program_.is_scheduled()) return Attention::None;
  const Size spilled = store.spilled().physical_in_use;
  Seen& seen = seen_[device.ordinal()];
  refill_allowance(seen, now);
  // On a device with leased memory, other processes may need some of it.
  const bool is_leased = device.budget().lessor() != nullptr;
  if (is_leased && now - seen.cold_at > second) {
    seen.cold = find_cold(seen, device, unlimited).out;
    seen.cold_at = now;
  }
  if (spilled <= program_.memory.holdings().spilled_free(device.ordinal())) {
    tallies_[static_cast<std::size_t>(device.ordinal())].hot.store(0);
    if (is_leased) return Attention::Uses;
    if (!is_nearly_full(device)) return Attention::None;
    // Records uses in advance, so that they are known once something has to leave.
    const Size has = device.chunk_counters().physical_in_use;
    if (std::exchange(seen.covered, has) != has) static_cast<void>(take_stock(seen, device));
    return Attention::Uses;
  }

  const std::vector<HeldChunk> held = take_stock(seen, device);
  std::vector<PlacedChunk> chunks = with_last_uses(held, uses_, seen.stays, device.ordinal());
  Size used = 0;
  for (const PlacedChunk& one : chunks) {
    if (one.residency == Residency::Far && one.last + 1 >= uses_.now()) used += one.size;
  }
  constexpr Size smooth = 4;
  seen.used_far = (seen.used_far * (smooth - 1) + used) / smooth;
  tallies_[static_cast<std::size_t>(device.ordinal())].hot.store(seen.used_far);
  assess_last_move(seen, now);
  if (now < seen.not_before) return Attention::Uses;

  const BetterPlaces places =
      find_better_places(std::move(chunks), {.now = uses_.now(),
                                             .room_near = room_near(seen, device),
                                             .room_far = store.spill_room(),
                                             .most = seen.allowance,
                                             .least = least_worth_a_stop});
  if (!places.are_any()) return Attention::Uses;
  // Some programs are nearly always inside a call. After failures it tries less often, so each
  // attempt may wait longer.
  const std::uint64_t for_calls = std::clamp(seen.rest / 10, usual_for_calls, second / 5);
  const Result<Migration::Moved> moved = change(device, places, for_calls);
  if (!moved.ok() || moved->in + moved->out == 0) {
    if (!moved.ok())
      CUVMM_LOG(Info, "device %d: %s", device.ordinal(), moved.error().text().c_str());
    seen.rest = std::clamp(seen.rest * 2, least_rest, most_patience);
    seen.not_before = now_ns() + seen.rest;
    return Attention::Uses;
  }
  seen.rest = 0;
  seen.allowance -= std::min(seen.allowance, moved->out + moved->in);
  if (seen.assess_at == 0) {
    seen.used_far_before = seen.used_far;
    seen.assess_at = now_ns() + until_judged;
  }
  return Attention::Uses;
}

// Does the slow part while the program still runs: breaks up free ranges of the device, and pins
// far memory, which the next taker can use.
Result<void> Placement::make_ready(DeviceMemory& device, const BetterPlaces& places) {
  ChunkStore& store = device.store();
  if (places.in > places.out) {
    store.reclaim(device.location(), places.in - places.out);
    // Checks that the lease can be had before the program has to stand still for it.
    if (device.budget().lessor() != nullptr) {
      const Commitment right = TRY(device.budget().commit(places.in - places.out));
    }
  }
  std::vector<ChunkRef> ready;
  for (const Size size : places.going) {
    Result<ChunkRef> one = store.take_spilled(size, device.exportable());
    if (!one.ok()) break;
    ready.push_back(std::move(one).value());
  }
  return {};
}

Result<Migration::Moved> Placement::change(DeviceMemory& device, const BetterPlaces& places,
                                           std::uint64_t for_calls, std::uint64_t for_work) {
  const char* why = why_not_quiescible(program_);
  // Waits for work would fail until the capture has ended.
  if (program_.captures != nullptr && program_.captures->any()) why = "a capture is in progress";
  if (why != nullptr) {
    return Error{.kind = ErrorKind::NotSupported, .doing = placing, .subject = why};
  }
  TRY(make_ready(device, places));
  const std::uint64_t began = now_ns();
  TRY(quiesce(program_, placing, began + for_calls, began + for_work));
  // Only now, since until here the program may have destroyed one.
  const CUcontext context = program_.memory.contexts().any_on(device.ordinal());
  if (context == nullptr) {
    end_quiescence(program_);
    return Error::invalid(placing, "the device has no context");
  }
  const RelaxedCapture relaxed{program_.driver};
  const InContext in_context{program_.driver, context};
  Migration::Moved moved;
  if (in_context.ok()) {
    EvictionSet evicted{
        .wants = [&](const Chunk& chunk) { return places.change.contains(chunk.handle()); },
        .cached = EvictionSet::Cached::Stays};
    begin_moving(device, places, evicted);
    auto migration = std::make_unique<Migration>(program_.driver, device, std::move(evicted));
    moved = migration->make();
    Tally& tally = tallies_[static_cast<std::size_t>(device.ordinal())];
    tally.in.fetch_add(moved.in);
    tally.out.fetch_add(moved.out);
    if (migration->is_broken()) {
      CUVMM_LOG(Warning, "the driver refuses to map moved memory: the program waits for it");
      stuck_ = std::move(migration);
      static_cast<void>(restore());
      return moved;
    }
  }
  end_quiescence(program_);
  CUVMM_LOG(Info, "device %d: moved %llu MiB of spilled memory in and %llu MiB out in %llu us",
            device.ordinal(), static_cast<unsigned long long>(moved.in / MiB),
            static_cast<unsigned long long>(moved.out / MiB),
            static_cast<unsigned long long>((now_ns() - began) / us));
  return moved;
}

bool Placement::restore() {
  const RelaxedCapture relaxed{program_.driver};
  int count = 0;
  const bool is_over = program_.driver.cuDeviceGetCount(&count) == CUDA_ERROR_DEINITIALIZED;
  if (!stuck_->restore() && !is_over) return false;
  stuck_.reset();
  end_quiescence(program_);
  return true;
}

}  // namespace cuvmm
