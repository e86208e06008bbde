// SPDX-License-Identifier: Apache-2.0
// The life of a context's windows, and of what the program does with a block between having it and
// giving it back.
#include "alloc/windows/windows.hpp"

#include <algorithm>

#include "alloc/windows/window_batch.hpp"
#include "trace/record_event.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

// The smallest blocks that are served take as many granules of addresses as fit into one.
constexpr const char* name_of_windows = "blocking, windows";
constexpr Size windows_a_granule = 33;

Size most_addresses(const WindowSettings& settings) {
  if (settings.reserve_most != 0) return round_down(settings.reserve_most, settings.granule);
  const Size memory = round_up(settings.device_memory, settings.granule);
  return memory > unlimited / windows_a_granule ? round_down(unlimited, settings.granule)
                                                : memory * windows_a_granule;
}

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
    : driver_(driver),
      store_(store),
      order_(order),
      settings_(settings),
      granule_(settings.granule),
      traced_(settings.device, name_of_windows),
      maps_(driver, settings.device, settings.access),
      addresses_(driver, {settings.granule, settings.reserve_step, most_addresses(settings)}),
      shared_(settings.granule, settings.seed) {
  registration_ = store.add_client(*this, settings.reclaim_order);
}

Windows::~Windows() {
  registration_ = {};
  release_all();
}

ChunkKind Windows::kind(Size size) const {
  return {size, Location::device(settings_.device), settings_.exportable};
}

void Windows::free(WindowBlock& block) {
  const Holding holding{lock_};
  end_life(block, {});
}

void Windows::free_after(WindowBlock& block, const FreeTicket& ticket) {
  const Holding holding{lock_};
  end_life(block, ticket);
}

void Windows::pin(WindowBlock& block, std::uint8_t why) {
  const Holding holding{lock_};
  const bool was_pinned = block.pinned();
  block.add_pin(why);
  SharedChunk* const chunk = block.shared;
  if (chunk == nullptr) return;
  if (!was_pinned) ++chunk->pinned;
  if ((why & held_by_others) != 0) chunk->retired = true;
  shared_.refile(*chunk);
  // Nobody may have its freed slots: their windows serve no purpose any more.
  for (WindowBlock* piece : chunk->pieces.copy()) {
    if (piece->state == WindowBlock::State::Ready) give_up(*piece);
  }
}

void Windows::unpin(WindowBlock& block, std::uint8_t why) {
  const Holding holding{lock_};
  const bool was_pinned = block.pinned();
  block.drop_pin(why);
  if (!was_pinned || block.pinned()) return;
  ++changes_;
  if (block.shared == nullptr) return;
  --block.shared->pinned;
  shared_.refile(*block.shared);
}

std::vector<MappedChunk> Windows::chunks_behind(const WindowBlock& block) const {
  const Holding holding{lock_};
  const PlacedBlock placed = block.placed(granule_);
  std::vector<MappedChunk> chunks;
  if (block.whole != nullptr) {
    Size offset = placed.whole() - placed.window() + block.whole->deferred_bytes;
    for (const ChunkRef& chunk : block.whole->chunks) {
      chunks.push_back({offset, chunk, maps_.access()});
      offset += chunk->size();
    }
  }
  if (block.shared != nullptr) {
    const Size offset = placed.piece_window() - placed.window();
    const MappedChunk piece{offset, block.shared->chunk, maps_.access()};
    chunks.insert(offset == 0 ? chunks.begin() : chunks.end(), piece);
  }
  return chunks;
}

std::vector<MappedRun> Windows::all_mapped() const {
  std::vector<MappedRun> runs;
  for_each_block([&](const WindowBlock& block) {
    const PlacedBlock placed = block.placed(granule_);
    if (block.piece_behind != WindowBlock::Behind::Nothing) {
      runs.push_back({placed.piece_window(), granule_});
    }
    if (block.whole != nullptr && block.whole->bytes != 0) {
      runs.push_back({placed.whole() + block.whole->deferred_bytes, block.whole->bytes});
    }
  });
  std::sort(runs.begin(), runs.end(),
            [](const MappedRun& a, const MappedRun& b) { return a.address < b.address; });
  std::vector<MappedRun> joined;
  for (const MappedRun& run : runs) {
    if (!joined.empty() && joined.back().address + joined.back().bytes == run.address &&
        addresses_.in_one_reservation(joined.back().address, joined.back().bytes + run.bytes)) {
      joined.back().bytes += run.bytes;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

Result<void> Windows::set_access(const AccessSet& access) {
  const Holding holding{lock_};
  return maps_.set_access(access, all_mapped());
}

void Windows::release_all() {
  const Holding holding{lock_};
  if (addresses_.reserved_bytes() == 0) return;  // nothing was taken, or all of it has gone
  tell();
  for (const auto& batch : unfinished_) {
    // Its blocks end here; a context that is gone, or broken, copies nothing any more.
    (void)driver_.cuStreamSynchronize(batch->stream);
  }
  unfinished_.clear();
  std::vector<WindowBlock*> blocks;
  for_each_block([&](WindowBlock& block) { blocks.push_back(&block); });
  for (WindowBlock* block : blocks) {
    const PlacedBlock placed = block->placed(granule_);
    if (block->piece_behind != WindowBlock::Behind::Nothing) {
      maps_.unmap_or_defer(placed.piece_window(), block->shared->chunk);
    }
    if (block->whole != nullptr) {
      CUdeviceptr address = placed.whole() + block->whole->deferred_bytes;
      for (const ChunkRef& chunk : block->whole->chunks) {
        maps_.unmap_or_defer(address, chunk);
        address += chunk->size();
      }
    }
    block->whole.reset();
    block->shared = nullptr;
    block->piece_behind = WindowBlock::Behind::Nothing;
    block->state = WindowBlock::State::Unused;
    block->unplace();
    records_.give_back(*block);
  }
  maps_.forget_all();
  cached_ = {};
  leaving_ = {};
  adrift_.clear();
  large_.clear();
  shared_.clear();
  addresses_.clear();
  whole_bytes_ = whole_far_bytes_ = 0;
  all_deferred_bytes_ = 0;
  counters_.live_blocks = 0;
  counters_.live_bytes = 0;
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
  const Holding holding{lock_};
  WindowCounters now = counters_;
  now.cached_blocks = cached_.ready() + cached_.pending();
  now.cached_bytes = cached_.bytes();
  now.vacant_bytes = shared_.vacant_bytes();
  now.physical_bytes = shared_.physical_bytes() + whole_bytes_;
  now.spilled_bytes = shared_.far_bytes() + whole_far_bytes_;
  now.spilled_taken = shared_.far_bytes_taken() + whole_far_bytes_;
  now.mapped_bytes = maps_.mapped_bytes();
  now.reserved_bytes = addresses_.reserved_bytes();
  return now;
}

void Windows::tell() const {
  if (!trace_is_on()) return;
  const Size used = counters_.live_bytes - all_deferred_bytes_;
  traced_.tell({.used = used,
                .free = held() - std::min(used, held()),
                .compacted = counters_.compacted_bytes});
}

void Windows::tell_of_change() {
  if (!trace_is_on()) return;
  if (told_held_ == held() && told_compacted_ == counters_.compacted_bytes) return;
  told_held_ = held();
  told_compacted_ = counters_.compacted_bytes;
  tell();
}

void Windows::tell_trace() const {
  const Holding holding{lock_, std::try_to_lock};
  if (holding.owns_lock()) tell();
}

}  // namespace cuvmm
