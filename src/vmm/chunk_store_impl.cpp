// SPDX-License-Identifier: Apache-2.0
#include "vmm/chunk_store_impl.hpp"

#include <algorithm>
#include <utility>

#include "trace/record_event.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {

Result<void> ChunkStore::Impl::add(Location where, std::shared_ptr<Budget> budget,
                                   LocalChunks::For purpose, Size most_free) {
  const Size granule = TRY(granularity_of(driver_, where));
  const Holding holding{lock_};
  if (local_at(where) != nullptr) return Error::invalid("serve a location", "it is served already");
  locals_.push_back(std::make_unique<LocalChunks>(
      LocalChunks{where, purpose, std::move(budget), granule, most_free, {}, 0, 0, 0}));
  if (purpose == LocalChunks::For::Spilling) spills_.store(true, std::memory_order_release);
  return {};
}

LocalChunks* ChunkStore::Impl::find_local(Location where) const {
  const Holding holding{lock_};
  return local_at(where);
}

LocalChunks* ChunkStore::Impl::local_at(Location where) const {
  for (const auto& local : locals_) {
    if (local->location == where) return local.get();
  }
  return nullptr;
}

ChunkRef ChunkStore::Impl::in_use(StoredChunk* chunk) {
  chunk->references.store(1, std::memory_order_relaxed);
  chunk->local->in_use += chunk->chunk.size();
  return ChunkRef::taking(chunk);
}

Result<ChunkRef> ChunkStore::Impl::take(const ChunkKind& kind, const ReclaimClient* asker) {
  if (ChunkRef free = take_free(kind)) return free;
  return make(kind, kind.size, asker);
}

Result<ChunkRef> ChunkStore::Impl::take_even_if_unexportable(const ChunkKind& kind) {
  Result<ChunkRef> taken = take(kind, nullptr);
  if (taken.ok() || taken.error().kind == ErrorKind::OutOfMemory) return taken;
  if (kind.exportable == Export::No) return taken;
  return take({kind.size, kind.location, Export::No}, nullptr);
}

ChunkRef ChunkStore::Impl::take_free(const ChunkKind& kind) {
  const Holding holding{lock_};
  LocalChunks* const local = local_at(kind.location);
  if (local == nullptr) return {};
  StoredChunk* const chunk = local->free.pop(kind.size, kind.exportable);
  return chunk != nullptr ? in_use(chunk) : ChunkRef{};
}

std::vector<ChunkRef> ChunkStore::Impl::take_free(const ChunkKind& kind, std::size_t most) {
  std::vector<ChunkRef> taken;
  const Holding holding{lock_};
  LocalChunks* const local = local_at(kind.location);
  if (local == nullptr) return taken;
  while (taken.size() < most) {
    StoredChunk* const chunk = local->free.pop(kind.size, kind.exportable);
    if (chunk == nullptr) break;
    taken.push_back(in_use(chunk));
  }
  return taken;
}

Result<ChunkRef> ChunkStore::Impl::make(const ChunkKind& kind, Size still_wanted,
                                        const ReclaimClient* asker) {
  LocalChunks* const local = find_local(kind.location);
  if (local == nullptr) return Error::invalid("take chunk", "no memory of that place is kept here");
  if (kind.size == 0 || !is_multiple(kind.size, local->granule)) {
    return Error::invalid("take chunk", "size is not in granules", kind.size);
  }
  Result<ChunkRef> made = try_to_make(kind, *local);
  if (made.ok() || made.error().kind != ErrorKind::OutOfMemory) return made;

  Size missing = local->budget->missing(made.error(), still_wanted);
  const Size released = release_free(kind.location, missing);
  if (released < missing) {
    missing -= released;
    clients_.ask(missing, kind.location, asker);
    // A chunk that returned may be of the wanted kind.
    if (ChunkRef free = take_free(kind)) return free;
    release_free(kind.location, missing);
  }
  made = try_to_make(kind, *local);
  if (made.ok()) return made;
  Error error = made.error();
  if (error.kind == ErrorKind::OutOfMemory) {
    error.asked = kind.size;
    error.available = local->budget->available();
  }
  return error;
}

// The commitment is not stored: the chunk's size and its location's budget define it.
Result<StoredChunk*> ChunkStore::Impl::create(const ChunkKind& kind, LocalChunks& local) {
  Commitment right = TRY(local.budget->commit(kind.size));
  Chunk created = TRY(Chunk::create(driver_, kind.size, kind.location, kind.exportable));
  right.keep();
  return new StoredChunk{std::move(created), this, local};
}

// Returns the commitment to the budget, which may take locks of its own. If the handle is not
// released yet, the chunk's destructor releases it, or defers that.
void ChunkStore::Impl::end(StoredChunk* chunk) {
  const Commitment right{*chunk->local->budget, chunk->chunk.size()};
  delete chunk;
}

Result<ChunkRef> ChunkStore::Impl::try_to_make(const ChunkKind& kind, LocalChunks& local) {
  StoredChunk* const chunk = TRY(create(kind, local));
  const Holding holding{lock_};
  ++chunk_count_;
  local.free.join(*chunk);
  return in_use(chunk);
}

void ChunkStore::Impl::come_home(ChunkRecord* record) {
  auto* const chunk = static_cast<StoredChunk*>(record);
  StoredChunk* going = nullptr;  // a list; these chunks keep this object alive until released
  {
    const Holding holding{lock_};
    LocalChunks& local = *chunk->local;
    if (local.purpose == LocalChunks::For::Spilling) {
      record_spill(TraceEvent::Fetch, chunk->chunk);
    };
    local.in_use -= chunk->chunk.size();
    const bool exported = chunk->exported.load(std::memory_order_relaxed);
    if (exported) local.exported -= chunk->chunk.size();
    if (exported || closed_) {
      going = chunk;
    } else {
      local.free.push(*chunk);
      while (local.free.free_bytes() > local.most_free) {
        StoredChunk* const oldest = local.free.pop_oldest();
        oldest->newer = std::exchange(going, oldest);
      }
    }
  }
  while (going != nullptr) release(std::exchange(going, going->newer));
}

void ChunkStore::Impl::was_exported(const ChunkRecord& record) {
  const Holding holding{lock_};
  static_cast<const StoredChunk&>(record).local->exported += record.chunk.size();
}

bool ChunkStore::Impl::release(StoredChunk* chunk) {
  const bool released = chunk->release_chunk().ok() || chunk->release_chunk().ok();
  {
    const Holding holding{lock_};
    LocalChunks& local = *chunk->local;
    if (!released && !closed_) {
      local.unreleased += chunk->chunk.size();
      unreleased_.push_back(chunk);
      return false;
    }
    local.free.leave(*chunk);
  }
  end(chunk);
  std::shared_ptr<Impl> last;  // destroyed after the lock is released
  const Holding holding{lock_};
  if (--chunk_count_ == 0) last = std::move(self_);
  return released;
}

void ChunkStore::Impl::retry_unreleased() {
  std::vector<StoredChunk*> again;
  {
    const Holding holding{lock_};
    again.swap(unreleased_);
    for (const StoredChunk* chunk : again) chunk->local->unreleased -= chunk->chunk.size();
  }
  for (StoredChunk* chunk : again) release(chunk);
}

template <class More>
Size ChunkStore::Impl::release_while(LocalChunks& local, More more) {
  const MemoryInHand::Holder in_hand{in_hand_};
  Size released = 0;
  std::uint32_t count = 0;
  for (;;) {
    StoredChunk* chunk = nullptr;
    Size kept = 0;
    {
      const Holding holding{lock_};
      if (more(released)) chunk = local.free.pop_oldest();
      kept = local.free.free_bytes();
    }
    if (chunk == nullptr) {
      if (count != 0) record_trim(local.location, released, kept, count);
      return released;
    }
    const Size size = chunk->chunk.size();
    if (!release(chunk)) continue;
    released += size;
    ++count;
  }
}

void ChunkStore::Impl::record_trim(Location where, Size released, Size kept, std::uint32_t chunks) {
  const bool is_here = where.is_device();
  CUVMM_TRACE(.event = TraceEvent::Trim, .flags = is_here ? std::uint16_t{0} : trace_flag::on_host,
              .device = static_cast<std::int16_t>(is_here ? where.id() : -1), .detail = chunks,
              .size = released, .other = kept);
}

Size ChunkStore::Impl::trim(Location where, Size down_to) {
  retry_unreleased();
  LocalChunks* const local = find_local(where);
  if (local == nullptr) return 0;
  return release_while(*local, [&](Size) { return local->free.free_bytes() > down_to; });
}

Size ChunkStore::Impl::release_free(Location where, Size wanted) {
  retry_unreleased();
  LocalChunks* const local = find_local(where);
  if (local == nullptr) return 0;
  return release_while(*local, [&](Size released) { return released < wanted; });
}

void ChunkStore::Impl::close(const std::shared_ptr<Impl>& impl) {
  std::vector<StoredChunk*> going;
  {
    const Holding holding{impl->lock_};
    impl->closed_ = true;
    if (impl->chunk_count_ != 0) impl->self_ = impl;
    going.swap(impl->unreleased_);
    for (const auto& local : impl->locals_) {
      while (StoredChunk* chunk = local->free.pop_oldest()) going.push_back(chunk);
    }
  }
  for (StoredChunk* chunk : going) impl->release(chunk);
}

ChunkCounters ChunkStore::Impl::counters(Location where) const {
  const Holding holding{lock_};
  const LocalChunks* const local = local_at(where);
  return local != nullptr ? counters_of(*local) : ChunkCounters{};
}

ChunkCounters ChunkStore::Impl::counters_of(const LocalChunks& local) {
  return {.physical_in_use = local.in_use,
          .physical_free = local.free.free_bytes(),
          .physical_exported = local.exported,
          .physical_unreleased = local.unreleased};
}

Budget* ChunkStore::Impl::budget(Location where) const {
  const Holding holding{lock_};
  const LocalChunks* const local = local_at(where);
  return local != nullptr ? local->budget.get() : nullptr;
}

InvariantViolation ChunkStore::Impl::violation() const {
  const Holding holding{lock_};
  std::size_t free_or_gone = unreleased_.size();
  for (const auto& local : locals_) {
    const auto complain = [&](const char* what) {
      return "chunk store, " + local->location.print() + ": " + what;
    };
    if (const InvariantViolation found = local->free.violation(local.get())) {
      return "chunk store, " + local->location.print() + ": " + *found;
    }
    if (local->exported > local->in_use) return complain("more is exported than in use");
    if (!is_multiple(local->in_use, local->granule))
      return complain("bytes in use are not whole granules");
    Size unreleased = 0;
    for (const StoredChunk* chunk : unreleased_) {
      if (chunk->local == local.get()) unreleased += chunk->chunk.size();
    }
    if (unreleased != local->unreleased) return complain("unreleased bytes are counted wrongly");
    free_or_gone += local->free.free_count();
  }
  if (free_or_gone > chunk_count_) return "chunk store: more chunks are free than there are";
  return {};
}

}  // namespace cuvmm
