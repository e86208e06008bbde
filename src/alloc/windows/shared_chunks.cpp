// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/shared_chunks.hpp"

#include <utility>

namespace cuvmm {
namespace {

// A new chunk for a new size is quick, and its slots stay in step; but a program of many sizes
// would fill the card with chunks that hold one block each.
constexpr Size vacant_at_ease = 4;  // granules
constexpr Size vacant_share = 16;   // one part in so many of all shared chunks

constexpr std::size_t chunks_of_a_rare_size = 4;  // fewer than that

}  // namespace

ChunkFormat& SharedChunks::record_of(const Format& format) {
  auto& record = formats_[format];
  if (record == nullptr) {
    record = std::make_unique<ChunkFormat>();
    record->format = format;
    record->seed = random_.next();
  }
  return *record;
}

// They come round after 2^32 chunks, when no batch is left that remembers one.
SharedChunk::Id SharedChunks::next_id() {
  if (++last_id_ == 0) ++last_id_;
  return last_id_;
}

SharedChunk& SharedChunks::add(ChunkRef chunk, const Format& format) {
  ChunkFormat& record = record_of(format);
  SharedChunk& added = records_.make();
  added.chunk = std::move(chunk);
  added.id = next_id();
  added.format = &record;
  const Size slots = format.slot_count(granule_);
  added.order = SlotOrder{record.seed, record.made++, slots};
  added.pieces.reserve(slots);
  added.in_use = added.pinned = added.copies = 0;
  added.retired = added.emptying = false;
  ++record.chunks;
  added.vacant_bytes = 0;
  if (added.residency() == Residency::Far) ++far_count_;
  added.place = static_cast<std::uint32_t>(all_.size());
  all_.push_back(&added);
  refile(added);
  return added;
}

ChunkRef SharedChunks::remove(SharedChunk& chunk) {
  chunk.retired = true;
  refile(chunk);
  all_[chunk.place] = all_.back();
  all_[chunk.place]->place = chunk.place;
  all_.pop_back();
  if (chunk.residency() == Residency::Far) {
    --far_count_;
    far_vacant_ -= chunk.vacant_bytes;
  }
  if (--chunk.format->chunks == 0) formats_.erase(chunk.format->format);
  chunk.format = nullptr;
  chunk.id = 0;
  ChunkRef freed = std::exchange(chunk.chunk, {});
  chunk.pieces.clear();
  records_.give_back(chunk);
  return freed;
}

void SharedChunks::set_residency(SharedChunk& chunk, Residency residency) {
  if (chunk.residency() == residency) return;
  if (chunk.is_open) chunk.format->open.remove(chunk);
  chunk.is_open = false;
  Format format = chunk.format->format;
  if (--chunk.format->chunks == 0) formats_.erase(format);
  format.residency = residency;
  ChunkFormat& record = record_of(format);
  chunk.format = &record;
  chunk.order = SlotOrder{record.seed, record.made++, format.slot_count(granule_)};
  ++record.chunks;
  if (residency == Residency::Far) {
    ++far_count_;
    far_vacant_ += chunk.vacant_bytes;
  } else {
    --far_count_;
    far_vacant_ -= chunk.vacant_bytes;
  }
  refile(chunk);
}

void SharedChunks::clear() {
  for (SharedChunk* chunk : all_) {
    chunk->id = 0;
    chunk->chunk = {};
    chunk->format = nullptr;
    chunk->is_open = false;
    chunk->vacancy_class = 0;
    chunk->pieces.clear();
    records_.give_back(*chunk);
  }
  all_.clear();
  formats_.clear();
  by_vacancy_ = {};
  idle_ = {};
  vacant_bytes_ = far_vacant_ = 0;
  far_count_ = 0;
}

void SharedChunks::put(SharedChunk& chunk, WindowBlock& block) {
  chunk.insert(block);
  if (chunk.in_use == 0 && chunk.pieces.size() > 1) idle_.remove(chunk);
  ++chunk.in_use;
  refile(chunk);
}

void SharedChunks::take_out(SharedChunk& chunk, WindowBlock& block) {
  chunk.erase(block);
  if (chunk.pieces.empty()) idle_.remove(chunk);
  refile(chunk);
}

SharedChunks::Vacancies SharedChunks::vacancies_of(const SharedChunk& chunk) {
  Vacancies found;
  chunk.for_each_vacancy([&](Stretch vacancy) {
    found.bytes += vacancy.size;
    found.largest = std::max(found.largest, vacancy.size);
    return true;
  });
  return found;
}

void SharedChunks::refile(SharedChunk& chunk) {
  if (chunk.vacancy_class != 0) vacant_bytes_ -= chunk.vacant_bytes;
  const Vacancies vacant = vacancies_of(chunk);
  if (chunk.residency() == Residency::Far) far_vacant_ += vacant.bytes - chunk.vacant_bytes;
  chunk.vacant_bytes = static_cast<SharedChunk::Bytes>(vacant.bytes);
  chunk.largest_vacancy = static_cast<SharedChunk::Bytes>(vacant.largest);
  const bool takes = chunk.takes_blocks();
  const std::size_t now = takes ? class_of(chunk.largest_vacancy) : 0;
  if (now != chunk.vacancy_class) {
    if (chunk.vacancy_class != 0) by_vacancy_[chunk.vacancy_class].remove(chunk);
    if (now != 0) by_vacancy_[now].push_back(chunk);
    chunk.vacancy_class = static_cast<std::uint8_t>(now);
  }
  if (now != 0) vacant_bytes_ += chunk.vacant_bytes;
  const bool open = takes && vacant_slot(chunk).has_value();
  if (open == chunk.is_open) return;
  chunk.is_open = open;
  if (open) {
    chunk.format->open.push_back(chunk);
  } else {
    chunk.format->open.remove(chunk);
  }
}

SharedChunks::VacantSlot SharedChunks::first_slot(SharedChunk& fresh) const {
  return {&fresh, *vacant_slot(fresh)};
}

std::optional<Stretch> SharedChunks::vacant_slot(const SharedChunk& chunk) const {
  const Format& format = chunk.format->format;
  if (format.size > chunk.largest_vacancy) return std::nullopt;
  for (const Size index : chunk.order.slots(format.slot_count(granule_))) {
    const Stretch slot = format.slot(index, granule_);
    if (chunk.is_vacant(slot)) return slot;
  }
  return std::nullopt;
}

// Starts at a random one, so that guests spread over their host's offsets.
std::optional<Stretch> SharedChunks::vacant_slot(const SharedChunk& chunk, const Format& format) {
  const Size count = format.slot_count(granule_);
  const Size first = random_.below(count);
  for (Size i = 0; i < count; ++i) {
    const Stretch slot = format.slot((first + i) % count, granule_);
    if (chunk.is_vacant(slot)) return slot;
  }
  return std::nullopt;
}

std::optional<SharedChunks::VacantSlot> SharedChunks::find(const Format& format, Look look) {
  const auto own = formats_.find(format);
  if (own != formats_.end() && !own->second->open.is_empty()) {
    return first_slot(*own->second->open.first());
  }
  if (look == Look::Lightly) {
    const Size at_ease = vacant_at_ease * granule_ + physical_bytes() / vacant_share;
    if (vacant_bytes_ <= at_ease) return std::nullopt;
  }
  if (format.cut != Cut::Slots) {
    return find_slot(format, look == Look::Hard ? all_.size() : few);
  }
  // Slots that are in step with those of its own size let compaction do more; of a size that is
  // rare it is better that they leave no gaps.
  const bool is_rare = own == formats_.end() || own->second->chunks < chunks_of_a_rare_size;
  if (!is_rare) {
    if (const auto place = find_slot(format, few)) return place;
    if (look == Look::Lightly) return std::nullopt;
  }
  return find_any(format);
}

// Small vacancies first.
std::optional<SharedChunks::VacantSlot> SharedChunks::find_slot(const Format& format,
                                                                std::size_t most_chunks) {
  for (std::size_t wide = class_of(format.size); wide <= classes; ++wide) {
    for (SharedChunk* chunk = by_vacancy_[wide].first(); chunk != nullptr;
         chunk = chunk->of_class.next) {
      if (chunk->largest_vacancy < format.size || chunk->residency() != format.residency) continue;
      if (const auto slot = vacant_slot(*chunk, format)) return VacantSlot{chunk, *slot};
      if (--most_chunks == 0) return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<SharedChunks::VacantSlot> SharedChunks::find_any(const Format& format) const {
  const Size size = format.size;
  for (std::size_t wide = class_of(size); wide <= classes; ++wide) {
    for (SharedChunk* chunk = by_vacancy_[wide].first(); chunk != nullptr;
         chunk = chunk->of_class.next) {
      if (chunk->largest_vacancy < size || chunk->residency() != format.residency) continue;
      Stretch best{0, granule_ + 1};
      chunk->for_each_vacancy([&](Stretch vacancy) {
        if (vacancy.size >= size && vacancy.size < best.size) best = vacancy;
        return true;
      });
      return VacantSlot{chunk, {best.offset, size}};
    }
  }
  return std::nullopt;
}

InvariantViolation SharedChunks::violation() const {
  Size vacant = 0;
  std::size_t idle = 0;
  std::size_t filed = 0;
  std::size_t open = 0;
  Size far_vacant = 0;
  std::size_t far_chunks = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const SharedChunk& chunk = *all_[i];
    if (chunk.place != i) return "shared chunks: one is not at its place";
    if (InvariantViolation found = violation_of(chunk)) return found;
    vacant += chunk.vacancy_class != 0 ? chunk.vacant_bytes : 0;
    idle += chunk.in_use == 0 && !chunk.pieces.empty() ? 1 : 0;
    filed += chunk.vacancy_class != 0 ? 1 : 0;
    open += chunk.is_open ? 1 : 0;
    far_vacant += chunk.residency() == Residency::Far ? chunk.vacant_bytes : 0;
    far_chunks += chunk.residency() == Residency::Far ? 1 : 0;
  }
  if (far_vacant != far_vacant_ || far_chunks != far_count_) {
    return "shared chunks: those that lie far are counted wrongly";
  }
  if (vacant != vacant_bytes_) return "shared chunks: vacant bytes are counted wrongly";
  if (idle != idle_.count()) return "shared chunks: the idle ones are not those listed";
  for (const auto& list : by_vacancy_) filed -= list.count();
  if (filed != 0) return "shared chunks: those with vacant bytes are not those listed";
  std::size_t chunks = 0;
  for (const auto& [format, record] : formats_) {
    open -= record->open.count();
    chunks += record->chunks;
  }
  if (open != 0) return "shared chunks: those with slots to hand out are not those listed";
  if (chunks != all_.size()) return "shared chunks: the formats count other chunks";
  return {};
}

InvariantViolation SharedChunks::violation_of(const SharedChunk& chunk) const {
  const auto complain = [&](const char* what) {
    return "shared chunk " + std::to_string(chunk.id) + ": " + what;
  };
  if (!chunk.chunk || chunk.size() != granule_) return complain("is not a chunk of one granule");
  if (chunk.pieces.empty()) return complain("holds no piece");
  if (InvariantViolation found = violation_of_pieces(chunk)) return found;
  const Vacancies vacant = vacancies_of(chunk);
  if (vacant.bytes != chunk.vacant_bytes || vacant.largest != chunk.largest_vacancy) {
    return complain("its vacant bytes are measured wrongly");
  }
  const std::size_t expected = chunk.takes_blocks() ? class_of(chunk.largest_vacancy) : 0;
  if (chunk.vacancy_class != expected) return complain("is filed under another vacancy");
  const bool open = chunk.takes_blocks() && vacant_slot(chunk).has_value();
  if (chunk.is_open != open) return complain("is wrong about handing out slots");
  return {};
}

InvariantViolation SharedChunks::violation_of_pieces(const SharedChunk& chunk) const {
  const auto complain = [&](const char* what) {
    return "shared chunk " + std::to_string(chunk.id) + ": " + what;
  };
  Size reached = 0;
  std::size_t in_use = 0;
  std::size_t pinned = 0;
  for (const WindowBlock* piece : chunk.pieces) {
    using State = WindowBlock::State;
    const Stretch where = chunk.where(*piece);
    if (where.size == 0 || !where.fits(granule_)) return complain("a piece is not within it");
    if (where.offset < reached) return complain("two pieces lie over each other");
    reached = where.end();
    const bool arrives = piece->shared != &chunk;
    if (arrives && piece->state != State::Moving && piece->state != State::Released) {
      return complain("a piece says that it lies elsewhere");
    }
    if (piece->state == State::Unused) return complain("a piece belongs to no block");
    in_use += piece->state != State::Ready && piece->state != State::Leaving ? 1 : 0;
    const bool held = piece->state == State::Live || piece->state == State::Moving;
    pinned += !arrives && held && piece->pinned() ? 1 : 0;
  }
  if (in_use != chunk.in_use) return complain("pieces in use are counted wrongly");
  if (pinned != chunk.pinned) return complain("pinned pieces are counted wrongly");
  return {};
}

}  // namespace cuvmm
