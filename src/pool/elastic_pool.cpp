// SPDX-License-Identifier: Apache-2.0
// Creating a pool, and allocating and freeing its bytes. Parking is in elastic_park.cpp, compaction
// in elastic_compact.cpp, statistics in elastic_books.cpp.
#include "pool/elastic_pool.hpp"

#include <algorithm>

#include "base/undo.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr const char* creating = "make an elastic pool";
constexpr const char* allocating = "allocate in a pool";
constexpr const char* freeing = "deallocate in a pool";
constexpr Size place_alignment = 512;
constexpr Size room_to_grow = 4;
constexpr int most_waits = 16;  // while new fences keep arriving

Error refusal(ErrorKind kind, const char* doing, const char* subject, Size asked, Size available) {
  return {.kind = kind, .doing = doing, .subject = subject, .asked = asked, .available = available};
}
Error refusal(ErrorKind kind, const char* doing, Size asked, Size available) {
  return refusal(kind, doing, "", asked, available);
}

// Reserves room to grow if no size was given, unless there are no addresses for that.
Result<Reservation> reserve(const PoolPlaces& places, Size capacity, Size wanted) {
  const Driver& driver = places.driver();
  const Size granule = places.granule();
  if (wanted != 0) {
    const Size most = round_up(wanted, granule);
    if (most == 0) return Error::invalid(creating, "may grow too large", wanted);
    return Reservation::create(driver, std::max(capacity, most), granule);
  }
  if (capacity <= unlimited / room_to_grow) {
    auto with_room = Reservation::create(driver, capacity * room_to_grow, granule);
    if (with_room.ok()) return with_room;
  }
  return Reservation::create(driver, capacity, granule);
}

// Removes the marks of allocations that overlap the stretch.
void forget_marks(std::map<Size, Size>& marks, Stretch stretch) {
  auto at = marks.lower_bound(stretch.offset);
  if (at != marks.begin()) {
    const auto before = std::prev(at);
    if (Stretch{before->first, before->second}.overlaps(stretch)) at = before;
  }
  while (at != marks.end() && at->first < stretch.end()) at = marks.erase(at);
}

}  // namespace

Result<std::unique_ptr<ElasticPool>> ElasticPool::create(std::shared_ptr<const PoolPlaces> places,
                                                         const Settings& settings) {
  const Size granule = places->granule();
  if (settings.capacity == 0) return Error::invalid(creating, "of no bytes");
  const Size capacity = round_up(settings.capacity, granule);
  if (capacity == 0) return Error::invalid(creating, "too large", settings.capacity);
  auto ground = std::make_shared<Ground>(TRY(reserve(*places, capacity, settings.most_capacity)));
  return std::unique_ptr<ElasticPool>{
      new ElasticPool{std::move(places), settings, capacity, std::move(ground)}};
}

ElasticPool::ElasticPool(std::shared_ptr<const PoolPlaces> places, const Settings& settings,
                         Size capacity, std::shared_ptr<Ground> ground)
    : places_(std::move(places)),
      quota_(settings.quota),
      physical_limit_(settings.physical_limit),
      ground_(std::move(ground)),
      fences_(std::make_shared<Fences>(places_->driver())),
      bytes_(capacity, places_->granule()),
      physical_at_(places_->count()) {
  requested_at_.reserve(places_->count());
  for (std::size_t i = 0; i < places_->count(); ++i) requested_at_.emplace_back(places_->store(i));
}

ElasticPool::~ElasticPool() {
  close();
}

Size ElasticPool::capacity() const {
  const Holding holding{lock_};
  return bytes_.unallocated().capacity();
}

Result<void> ElasticPool::check_active(const char* doing) const {
  if (state_ == State::Active) return {};
  return Error{
      .kind = ErrorKind::NotMapped, .doing = doing, .subject = "the memory is deactivated"};
}

Result<void> ElasticPool::check_stretch(const char* doing, Stretch stretch) const {
  if (stretch.size == 0) return Error::invalid(doing, "of no bytes");
  if (stretch.fits(bytes_.unallocated().capacity())) return {};
  return refusal(ErrorKind::InvalidOffset, doing, stretch.size, bytes_.unallocated().capacity());
}

Result<Size> ElasticPool::allocate(Size size, AllocationTraits traits) {
  const Holding holding{lock_};
  TRY(check_active(allocating));
  if (size == 0) return Error::invalid(allocating, "of no bytes");
  const FreeBytes& available = bytes_.available();
  const std::optional<Size> offset = available.find(size, place_alignment);
  if (!offset) {
    return refusal(ErrorKind::OutOfAddresses, allocating, "in one piece; grow() adds addresses",
                   size, available.largest());
  }
  TRY(place({*offset, size}, traits));
  return *offset;
}

Result<void> ElasticPool::allocate_at(Stretch stretch, AllocationTraits traits) {
  const Holding holding{lock_};
  TRY(check_active(allocating));
  TRY(check_stretch(allocating, stretch));
  if (!bytes_.available().is_free(stretch)) return conflict(stretch);
  return place(stretch, traits);
}

// Why an allocation cannot lie there. If bytes are merely withheld, requests that the next
// compact(), which may remap granules, make room.
Error ElasticPool::conflict(Stretch stretch) {
  Error error = refusal(ErrorKind::AlreadyMapped, allocating, stretch.size,
                        bytes_.available().free_at_front(stretch));
  if (bytes_.is_evicted(stretch)) {
    error.subject = "some of it was just evicted, and its owner is not notified yet";
    return error;
  }
  if (!bytes_.is_withheld(stretch)) return error;
  for (const MappedChunk& mapped : ground_->mapping.chunks_in(stretch)) {
    asked_for_.insert(mapped.offset / granule());
  }
  error.subject = "its granule shares memory since compact(), and the next compact() separates it";
  return error;
}

// A fence may be added between the wait and the lock, so it checks again under the lock.
Result<Holding> ElasticPool::lock_when_idle(const char* doing) {
  for (int waits = 0; waits < most_waits; ++waits) {
    TRY(fences_->wait());
    Holding holding{lock_};
    if (fences_->is_idle()) return holding;
  }
  return Error{
      .kind = ErrorKind::TimedOut,
      .doing = doing,
      .subject = "fences keep coming: submit nothing that uses the pool until this returns"};
}

Result<void> ElasticPool::deallocate(Stretch stretch) {
  TRY(fences_->wait());
  const Holding holding{lock_};
  TRY(check_active(freeing));
  TRY(check_stretch(freeing, stretch));
  if (!bytes_.unallocated().is_taken(stretch)) {
    return refusal(ErrorKind::NotMapped, freeing, stretch.size,
                   bytes_.unallocated().taken_at_front(stretch));
  }
  TRY(remove(stretch, Reuse::AtOnce));
  return {};
}

bool ElasticPool::is_mapped(Stretch stretch) const {
  const Holding holding{lock_};
  if (state_ != State::Active || stretch.size == 0 ||
      !stretch.fits(bytes_.unallocated().capacity()))
    return false;
  if (!bytes_.unallocated().is_taken(stretch)) return false;
  return !is_damaged_ || ground_->mapping.covers(stretch);
}

Result<void> ElasticPool::lend(Stretch stretch,
                               const std::function<Result<void>(const ChunkRef&)>& lend_one) const {
  constexpr const char* lending = "lend memory of a pool";
  const Holding holding{lock_};
  TRY(check_active(lending));
  TRY(check_stretch(lending, stretch));
  if (!is_multiple(stretch.offset, granule()) || !is_multiple(stretch.size, granule())) {
    return Error{.kind = ErrorKind::InvalidOffset,
                 .doing = lending,
                 .subject = "only whole granules can be lent"};
  }
  const Mapping& mapping = ground_->mapping;
  if (!bytes_.unallocated().is_taken(stretch) || !mapping.covers(stretch)) {
    return refusal(ErrorKind::NotMapped, lending, stretch.size,
                   bytes_.unallocated().taken_at_front(stretch));
  }
  for (const Size at : granules_of(stretch)) TRY(lend_one(mapping.find(at * granule())->chunk));
  return {};
}

Result<void> ElasticPool::grow(Size capacity) {
  constexpr const char* growing = "grow a pool";
  const Size rounded = capacity > unlimited - granule() ? unlimited : round_up(capacity, granule());
  const Holding holding{lock_};
  TRY(check_active(growing));
  if (rounded < bytes_.unallocated().capacity()) {
    return refusal(ErrorKind::InvalidArgument, growing, "to less than it has", capacity,
                   bytes_.unallocated().capacity());
  }
  const Size reserved = ground_->addresses.size();
  if (rounded > reserved) {
    return refusal(ErrorKind::OutOfAddresses, growing,
                   "most_capacity was reserved when the pool was made", capacity, reserved);
  }
  bytes_.grow(rounded);
  return {};
}

ElasticPool::Granules ElasticPool::granules_of(Stretch stretch) const {
  Granules granules;
  const Size last = (stretch.end() - 1) / granule();
  for (Size at = stretch.offset / granule(); at <= last; ++at) granules.push_back(at);
  return granules;
}

ElasticPool::Granules ElasticPool::without_memory(const Granules& granules) const {
  Granules missing;
  for (const Size at : granules) {
    if (ground_->mapping.find(at * granule()) == nullptr) missing.push_back(at);
  }
  return missing;
}

ElasticPool::Granules ElasticPool::emptied_by_removing(Stretch stretch) const {
  const auto is_free = [&](Size begin, Size end) {
    return begin >= end || bytes_.unallocated().is_free({begin, end - begin});
  };
  Granules emptied = granules_of(stretch);
  std::erase_if(emptied, [&](Size at) {
    const Stretch whole = of_granule(at);
    return !is_free(whole.offset, std::min(stretch.offset, whole.end())) ||
           !is_free(std::max(stretch.end(), whole.offset), whole.end());
  });
  return emptied;
}

void ElasticPool::hold(const ChunkRef& chunk) {
  physical_ += chunk->size();
  physical_at_[places_->index_of(chunk->location())] += chunk->size();
}

void ElasticPool::release_chunk(const ChunkRef& chunk) {
  physical_ -= chunk->size();
  physical_at_[places_->index_of(chunk->location())] -= chunk->size();
}

Result<std::vector<ChunkRef>> ElasticPool::take_chunks(const Granules& granules) {
  const Size bytes = granules.size() * granule();
  const Size left = physical_limit_ > physical_ ? physical_limit_ - physical_ : 0;
  if (bytes > left) {
    return refusal(ErrorKind::OutOfMemory, allocating, "the pool's physical_limit", bytes, left);
  }
  if (quota_ != nullptr) TRY(quota_->claim(bytes));
  auto chunks = places_->take(granules);
  if (!chunks.ok()) {
    if (quota_ != nullptr) quota_->give_back(bytes);
    return chunks.error();
  }
  for (const ChunkRef& chunk : *chunks) hold(chunk);
  return chunks;
}

Result<PoolCopies*> ElasticPool::copies() {
  if (copies_ == nullptr || copies_->has_ended()) {
    copies_ = TRY(PoolCopies::create(places_->driver(), places_->home_device()));
  }
  return copies_.get();
}

// `stretch` must be available. Everything that can fail precedes any change, and only granules
// without memory are mapped: live memory stays as it is, whatever work uses it.
Result<void> ElasticPool::place(Stretch stretch, AllocationTraits traits) {
  const Granules wanted = without_memory(granules_of(stretch));
  if (!wanted.empty()) {
    Undo release = release_what_was_made();
    std::vector<ChunkRef> chunks = TRY(take_chunks(wanted));
    MapPlan plan;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      plan.map(ground_->mapping, wanted[i] * granule(), chunks[i], places_->access());
    }
    if (const Result<void> done = plan.commit(); !done.ok()) {
      chunks.clear();
      recount();
      return done.error();
    }
    release.keep();
  }
  bytes_.take(stretch);
  if (traits.movable == Movable::Yes) movable_.emplace(stretch.offset, stretch.size);
  if (traits.evictable == Evictable::Yes) evictable_.emplace(stretch.offset, stretch.size);
  count_requested();
  return {};
}

std::vector<MappedChunk> ElasticPool::chunks_of(const Granules& granules) const {
  std::vector<MappedChunk> chunks;
  chunks.reserve(granules.size());
  for (const Size at : granules) {
    const MappedChunk* const mapped = ground_->mapping.find(at * granule());
    if (mapped != nullptr) chunks.push_back(*mapped);
  }
  return chunks;
}

Result<void> ElasticPool::unmap(const std::vector<MappedChunk>& chunks) {
  MapPlan plan;
  for (const MappedChunk& chunk : chunks) plan.unmap(ground_->mapping, chunk.offset);
  const Result<void> done = plan.commit();
  if (!done.ok()) recount();
  return done;
}

// Stops counting unmapped chunks as held, except for those that other granules share.
Size ElasticPool::forget_granules(const std::vector<MappedChunk>& gone) {
  Size freed = 0;
  for (const MappedChunk& chunk : gone) {
    const Size at = chunk.offset / granule();
    if (bytes_.shared().is_shared(at)) {
      bytes_.leave(at);
    } else {
      release_chunk(chunk.chunk);
      freed += granule();
    }
  }
  if (quota_ != nullptr && freed != 0) quota_->give_back(freed);
  return freed;
}

Result<Size> ElasticPool::remove(Stretch stretch, Reuse when) {
  const std::vector<MappedChunk> gone = chunks_of(emptied_by_removing(stretch));
  if (!gone.empty()) TRY(unmap(gone));
  const Size freed = forget_granules(gone);
  when == Reuse::AtOnce ? bytes_.give(stretch) : bytes_.evict(stretch);
  forget_marks(movable_, stretch);
  forget_marks(evictable_, stretch);
  count_requested();
  return freed;
}

}  // namespace cuvmm
