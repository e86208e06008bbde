// SPDX-License-Identifier: Apache-2.0
// Creating and ending a context's windows, and everything that happens to a live block.
#include "alloc/windows/windows.hpp"

#include <algorithm>

#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

constexpr const char* name_of_windows = "blocking, windows";

}  // namespace

Result<std::unique_ptr<Windows>> Windows::create(const Driver& driver, ChunkStore& store,
                                                 StreamOrder& order,
                                                 const WindowSettings& settings) {
  constexpr const char* doing = "set up windows";
  if (!is_power_of_two(settings.granule) || settings.granule < 64 * window_step) {
    return Error::invalid(doing, "granule is not a power of two, or too small", settings.granule);
  }
  if (settings.device_memory == 0) return Error::invalid(doing, "on a device without memory");
  return std::unique_ptr<Windows>{new Windows{driver, store, order, settings}};
}

Windows::Windows(const Driver& driver, ChunkStore& store, StreamOrder& order,
                 const WindowSettings& settings)
    : store_(store),
      settings_(settings),
      traced_(settings.device, name_of_windows),
      table_(driver, order, settings),
      transfer_(table_, compactor_, store, settings_, *this) {
  registration_ = store.add_client(*this, settings.reclaim_order);
}

Windows::~Windows() {
  registration_ = {};
  release_all();
}

void Windows::free(WindowBlock& block) {
  const Holding holding{table_.lock};
  table_.end_life(block, {});
}

void Windows::free_after(WindowBlock& block, const FreeTicket& ticket) {
  const Holding holding{table_.lock};
  table_.end_life(block, ticket);
}

void Windows::pin(WindowBlock& block, std::uint8_t why) {
  const Holding holding{table_.lock};
  const bool was_pinned = block.pinned();
  block.add_pin(why);
  SharedChunk* const chunk = block.shared;
  if ((why & held_by_devices) != 0) {
    if (chunk != nullptr) static_cast<void>(chunk->chunk.mark_exported());
    if (block.whole != nullptr) {
      for (const ChunkRef& one : block.whole->chunks) static_cast<void>(one.mark_exported());
    }
  }
  if (chunk == nullptr) return;
  if (!was_pinned) ++chunk->pinned;
  if ((why & held_by_others) != 0) chunk->retired = true;
  table_.shared.refile(*chunk);
  // Its freed slots may not be reused, so their windows are useless.
  for (WindowBlock* piece : chunk->pieces.copy()) {
    if (piece->state == WindowBlock::State::Ready) table_.give_up(*piece);
  }
}

void Windows::unpin(WindowBlock& block, std::uint8_t why) {
  const Holding holding{table_.lock};
  const bool was_pinned = block.pinned();
  block.drop_pin(why);
  if (!was_pinned || block.pinned()) return;
  ++table_.changes;
  if (block.shared == nullptr) return;
  --block.shared->pinned;
  table_.shared.refile(*block.shared);
}

ChunksBehind Windows::chunks_behind(const WindowBlock& block) const {
  const Holding holding{table_.lock};
  const PlacedBlock placed = block.placed(table_.granule);
  ChunksBehind behind;
  std::vector<MappedChunk>& chunks = behind.chunks;
  if (block.whole != nullptr) {
    Size offset = placed.whole() - placed.window() + block.whole->deferred_bytes;
    for (const ChunkRef& chunk : block.whole->chunks) {
      chunks.push_back({offset, chunk, table_.maps.access()});
      offset += chunk->size();
    }
  }
  if (block.shared != nullptr) {
    const Size offset = placed.piece_window() - placed.window();
    const MappedChunk piece{offset, block.shared->chunk, table_.maps.access()};
    chunks.insert(offset == 0 ? chunks.begin() : chunks.end(), piece);
  }
  if (!chunks.empty()) behind.offset = block.address() - placed.window() - chunks.front().offset;
  return behind;
}

Result<void> Windows::set_access(const AccessSet& access) {
  const Holding holding{table_.lock};
  return table_.maps.set_access(access, table_.all_mapped());
}

void Windows::release_all() {
  const Holding holding{table_.lock};
  if (table_.addresses.reserved_bytes() == 0) return;  // never used, or released already
  tell();
  compactor_.abandon();
  table_.release_all();
}

Size Windows::reclaim(Size wanted, Location where) {
  if (!(where == Location::device(table_.device))) return 0;
  const Holding holding{table_.lock, std::try_to_lock};
  if (!holding.owns_lock() || table_.is_away) return 0;
  return give_up(wanted);
}

Size Windows::release(Size wanted) {
  const Holding holding{table_.lock};
  return give_up(wanted);
}

Size Windows::release_cheap(Size wanted) {
  const Holding holding{table_.lock};
  const Size gone = table_.give_up_cheap_chunks(wanted);
  tell_of_change();
  return gone;
}

Size Windows::give_up(Size wanted) {
  compactor_.tidy();
  const Size gone = table_.give_up_whole_chunks(wanted);
  tell_of_change();
  return gone;
}

Size Windows::trim(Size keep) {
  const Holding holding{table_.lock};
  compactor_.tidy();
  const Size wanted = saturating_sum(table_.live_bytes, keep);
  const Size gone =
      table_.held() > wanted ? table_.give_up_whole_chunks(table_.held() - wanted) : 0;
  tell_of_change();
  return gone;
}

Result<Size> Windows::compact(Size wanted, const Compaction& how) {
  const Size freed = TRY(compactor_.compact(wanted, how));
  const Holding holding{table_.lock};
  tell_of_change();
  return freed;
}

InvariantViolation Windows::violation() const {
  const Holding holding{table_.lock};
  if (InvariantViolation found = table_.violation()) return found;
  return compactor_.violation();
}

RegionUse Windows::use() const {
  const WindowCounters now = counters();
  return {.what = name_of_windows,
          .held = now.physical_bytes,
          .used = std::min(now.live_bytes, now.physical_bytes),
          .cached = now.cached_bytes,
          .spilled = now.spilled_bytes,
          .reserved = now.reserved_bytes,
          .blocks = now.live_blocks};
}

WindowCounters Windows::counters() const {
  const Holding holding{table_.lock};
  const WindowCompactor::Counters& compacted = compactor_.counters();
  return {.live_blocks = table_.live_blocks,
          .live_bytes = table_.live_bytes,
          .cached_blocks = table_.cached.ready() + table_.cached.pending(),
          .cached_bytes = table_.cached.bytes(),
          .vacant_bytes = table_.shared.vacant_bytes(),
          .physical_bytes = table_.held(),
          .spilled_bytes = table_.shared.far_bytes() + table_.whole_far_bytes,
          .spilled_taken = table_.shared.far_bytes_taken() + table_.whole_far_bytes,
          .mapped_bytes = table_.maps.mapped_bytes(),
          .reserved_bytes = table_.addresses.reserved_bytes(),
          .compacted_bytes = compacted.bytes,
          .compacted_blocks = compacted.blocks,
          .compacted_chunks = compacted.chunks};
}

void Windows::tell() const {
  if (!trace_is_on()) return;
  const Size used = table_.live_bytes - table_.deferred_bytes;
  const Size held = table_.held();
  traced_.tell({.used = used,
                .free = held - std::min(used, held),
                .compacted = compactor_.counters().bytes});
}

void Windows::tell_of_change() {
  if (!trace_is_on()) return;
  const Size compacted = compactor_.counters().bytes;
  if (told_held_ == table_.held() && told_compacted_ == compacted) return;
  told_held_ = table_.held();
  told_compacted_ = compacted;
  tell();
}

void Windows::trace_holdings() const {
  const Holding holding{table_.lock, std::try_to_lock};
  if (holding.owns_lock()) tell();
}

}  // namespace cuvmm
