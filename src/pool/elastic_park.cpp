// SPDX-License-Identifier: Apache-2.0
// Parking, evicting and closing a pool's memory.
#include "pool/elastic_pool.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {
constexpr const char* parking = "deactivate a pool's memory";
constexpr const char* unparking = "activate a pool's memory";
constexpr const char* evicting = "evict a pool's memory";
}  // namespace

Result<void> ElasticPool::park() {
  const Holding holding = TRY(lock_when_idle(parking));
  if (state_ == State::Parked) return {};
  TRY(check_active(parking));
  std::vector<MappedChunk> all;
  all.reserve(ground_->mapping.chunk_count());
  ground_->mapping.for_each([&](const MappedChunk& mapped) { all.push_back(mapped); });
  if (!all.empty()) TRY(unmap(all));
  parked_ = std::move(all);
  parked_is_lost_ = false;
  state_ = State::Parked;
  return {};
}

Result<Activation> ElasticPool::unpark() {
  const Holding holding{lock_};
  if (state_ == State::Active) return Activation::Kept;
  if (state_ == State::Closed) return Error{.kind = ErrorKind::NotFound, .doing = unparking};
  Undo release = release_what_was_made();
  std::vector<MappedChunk> coming = parked_;
  if (parked_is_lost_) {
    Granules granules;
    for (const Stretch& taken :
         bytes_.unallocated().taken_in({0, bytes_.unallocated().capacity()})) {
      for (const Size at : granules_of(taken)) {
        if (granules.empty() || granules.back() != at) granules.push_back(at);
      }
    }
    std::vector<ChunkRef> chunks = TRY(take_chunks(granules));
    for (std::size_t i = 0; i < granules.size(); ++i) {
      coming.push_back({granules[i] * granule(), std::move(chunks[i]), AccessSet::none()});
    }
  }
  MapPlan plan;
  for (const MappedChunk& chunk : coming) {
    plan.map(ground_->mapping, chunk.offset, chunk.chunk, places_->access());
  }
  if (const Result<void> done = plan.commit(); !done.ok()) {
    coming.clear();
    recount();
    return done.error();
  }
  release.keep();
  parked_.clear();
  state_ = State::Active;
  count_requested();
  return parked_is_lost_ ? Activation::Lost : Activation::Kept;
}

Size ElasticPool::drop_parked() {
  std::vector<MappedChunk> going;  // released after the lock
  const Holding holding{lock_};
  if (state_ != State::Parked || parked_.empty()) return 0;
  going.swap(parked_);
  parked_is_lost_ = true;
  bytes_.share_nothing();
  const Size freed = physical_;
  physical_ = 0;
  physical_at_.assign(physical_at_.size(), 0);
  count_requested();
  if (quota_ != nullptr) quota_->give_back(freed);
  return freed;
}

bool ElasticPool::is_parked() const {
  const Holding holding{lock_};
  return state_ == State::Parked;
}

Size ElasticPool::parked_bytes() const {
  const Holding holding{lock_};
  return state_ == State::Parked ? physical_ : 0;
}

Result<ElasticPool::Evicted> ElasticPool::evict(Size wanted) {
  Evicted evicted;
  const Holding holding = TRY(lock_when_idle(evicting));
  TRY(check_active(evicting));
  while (evicted.physical < wanted && !evictable_.empty()) {
    const Stretch next{evictable_.begin()->first, evictable_.begin()->second};
    const auto freed = remove(next, Reuse::Later);
    if (!freed.ok() && evicted.allocations.empty()) return freed.error();
    if (!freed.ok()) break;
    evicted.allocations.push_back(next);
    evicted.physical += *freed;
  }
  return evicted;
}

void ElasticPool::reuse(Stretch evicted) {
  const Holding holding{lock_};
  bytes_.reuse(evicted);
}

Size ElasticPool::evictable_bytes() const {
  const Holding holding{lock_};
  Size bytes = 0;
  if (state_ != State::Active) return 0;
  for (const auto& [offset, size] : evictable_) bytes += size;
  return bytes;
}

void ElasticPool::close() {
  const Result<void> waited = fences_->wait();
  // A sticky error has ended the work too.
  const bool work_is_over =
      waited.ok() || is_sticky(static_cast<CUresult>(waited.error().driver_code));
  std::vector<MappedChunk> going;  // released after the lock
  const Holding holding{lock_};
  if (state_ == State::Closed) return;
  state_ = State::Closed;
  going.swap(parked_);
  if (work_is_over) {
    ground_->mapping = Mapping::of(ground_->addresses);
  } else {
    defer_release(Deferred::Copy, [fences = fences_, ground = ground_]() -> CUresult {
      const Result<void> over = fences->wait();
      if (over.ok() || is_sticky(static_cast<CUresult>(over.error().driver_code))) {
        return CUDA_SUCCESS;
      }
      return to_cuda(over.error());
    });
  }
  bytes_.share_nothing();
  movable_.clear();
  evictable_.clear();
  if (quota_ != nullptr) quota_->give_back(physical_);
  physical_ = 0;
  physical_at_.assign(physical_at_.size(), 0);
  count_requested();
}

}  // namespace cuvmm
