// SPDX-License-Identifier: Apache-2.0
// The chunks that a store holds elsewhere, for use when its device has no room.
#include "trace/record_event.hpp"
#include "vmm/chunk_store_impl.hpp"

namespace cuvmm {

std::vector<Location> ChunkStore::Impl::spill_places() const {
  std::vector<Location> places;
  const Holding holding{lock_};
  for (const auto& local : locals_) {
    if (local->purpose == LocalChunks::For::Spilling) places.push_back(local->location);
  }
  return places;
}

// Takes a free chunk at any place before it creates one: pinning memory takes a hundred times as
// long as mapping it.
Result<ChunkRef> ChunkStore::Impl::take_spilled(Size size, Export exportable) {
  const std::vector<Location> places = spill_places();
  if (!places.empty()) has_spilled_.store(true, std::memory_order_relaxed);
  for (const Location& where : places) {
    if (ChunkRef free = take_free({size, where, exportable})) {
      record_spill(TraceEvent::Spill, *free);
      return free;
    }
  }
  Error refusal{.kind = ErrorKind::OutOfMemory,
                .doing = "take spilled memory",
                .subject = "there is no place to spill to",
                .asked = size};
  for (const Location& where : places) {
    Result<ChunkRef> taken = take_even_if_unexportable({size, where, exportable});
    if (taken.ok()) {
      record_spill(TraceEvent::Spill, **taken);
      return taken;
    }
    refusal = taken.error();
  }
  // A place may fail for another reason, but to the caller this is a lack of memory.
  refusal.kind = ErrorKind::OutOfMemory;
  return refusal;
}

Result<void> ChunkStore::Impl::make_spilled_ready(Size size) {
  for (const Location& where : spill_places()) {
    if (!where.is_host()) continue;
    LocalChunks& local = *find_local(where);
    StoredChunk* const chunk = TRY(create({size, where, Export::No}, local));
    chunk->references.store(0, std::memory_order_relaxed);  // it begins as a free chunk
    const Holding holding{lock_};
    ++chunk_count_;
    local.free.join(*chunk);
    local.free.push(*chunk);
    return {};
  }
  return Error{.kind = ErrorKind::NotSupported,
               .doing = "pin memory ahead",
               .subject = "nothing spills to the host"};
}

ChunkCounters ChunkStore::Impl::spilled() const {
  ChunkCounters sum;
  const Holding holding{lock_};
  for (const auto& local : locals_) {
    if (local->purpose != LocalChunks::For::Spilling) continue;
    const ChunkCounters here = counters_of(*local);
    sum.physical_in_use += here.physical_in_use;
    sum.physical_free += here.physical_free;
    sum.physical_exported += here.physical_exported;
    sum.physical_unreleased += here.physical_unreleased;
  }
  return sum;
}

Size ChunkStore::Impl::spill_room() const {
  if (!spills()) return 0;
  Size room = 0;
  const Holding holding{lock_};
  for (const auto& local : locals_) {
    if (local->purpose != LocalChunks::For::Spilling) continue;
    room = saturating_sum(room, local->free.free_bytes(), local->budget->available());
  }
  return room;
}

// Records when a chunk elsewhere comes into use or is no longer in use.
void ChunkStore::Impl::record_spill(TraceEvent event, const Chunk& chunk) const {
  const Location where = chunk.location();
  CUVMM_TRACE(.event = event, .flags = where.is_device() ? std::uint16_t{0} : trace_flag::on_host,
              .device = static_cast<std::int16_t>(locals_.front()->location.id()),
              .detail = static_cast<std::uint32_t>(where.id()), .size = chunk.size(),
              .other = chunk.handle());
}

}  // namespace cuvmm
