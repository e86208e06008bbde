// SPDX-License-Identifier: Apache-2.0
#include "alloc/allocation_map.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "alloc/bit_line.hpp"
#include "alloc/granule_starts.hpp"

namespace cuvmm {
namespace {

template <class T>
T& made(std::atomic<T*>& place, auto make) {
  T* there = place.load(std::memory_order_acquire);
  if (there != nullptr) return *there;
  T* mine = make();
  if (place.compare_exchange_strong(there, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *there;
}

}  // namespace

struct AllocationMap::Span {
  BitLine<granules_a_span> in_use;
  std::array<Granule, granules_a_span> granules;
};

struct AllocationMap::Insides {
  struct MapLock : Lock {
    MapLock() : Lock(LockOrder::AllocationMap) {}
  };
  BitLine<span_count> in_use;
  std::array<std::atomic<Span*>, span_count> spans{};
  // Chosen by granule, so that threads seldom contend. No thread holds two of them.
  std::array<MapLock, lock_count> locks;

  ~Insides() {
    for (auto& span : spans) delete span.load();
  }
};

AllocationMap::AllocationMap(MayContain may_contain)
    : may_contain_(may_contain), insides_(std::make_unique<Insides>()) {}
AllocationMap::~AllocationMap() = default;

Lock& AllocationMap::lock_of(CUdeviceptr address) const {
  return insides_->locks[(address >> granule_bits) % lock_count];
}

AllocationMap::Span* AllocationMap::span_at(std::size_t number) const {
  return number < span_count ? insides_->spans[number].load(std::memory_order_acquire) : nullptr;
}

AllocationMap::Granule* AllocationMap::granule_at(CUdeviceptr address) const {
  Span* const span = span_at(address >> span_bits);
  if (span == nullptr) return nullptr;
  return &span->granules[(address >> granule_bits) % granules_a_span];
}

AllocationMap::Granule& AllocationMap::granule_for(CUdeviceptr address) {
  const std::size_t number = (address >> span_bits) % span_count;
  Span& span = made(insides_->spans[number], [] { return new Span; });
  const std::size_t within = (address >> granule_bits) % granules_a_span;
  span.in_use.set(within);
  insides_->in_use.set(number);
  return span.granules[within];
}

void AllocationMap::add(Allocation& allocation) {
  const CUdeviceptr address = allocation.address();
  forget_starts_within(address + 1, allocation.end());
  const std::unique_lock holding{lock_of(address)};
  granule_for(address).add(allocation);
  allocation.set_listed();
}

// Whatever began there is gone, so downward searches can skip these addresses.
void AllocationMap::forget_starts_within(CUdeviceptr begin, CUdeviceptr end) {
  while (begin < end) {
    const CUdeviceptr base = begin >> granule_bits << granule_bits;
    const CUdeviceptr next = base + (CUdeviceptr{1} << granule_bits);
    if (base == begin && end - begin >= next - base) {
      const CUdeviceptr span_end = ((begin >> span_bits) + 1) << span_bits;
      const CUdeviceptr until = std::min(span_end, end >> granule_bits << granule_bits);
      if (Span* span = span_at(begin >> span_bits)) {
        const std::size_t first = (begin >> granule_bits) % granules_a_span;
        span->in_use.clear(first, first + ((until - begin) >> granule_bits));
      }
      begin = until;
      continue;
    }
    if (Granule* granule = granule_at(begin)) {
      const std::unique_lock holding{lock_of(begin)};
      granule->forget(begin, std::min(end, next));
    }
    begin = next;
  }
}

std::optional<AllocationMap::Found> AllocationMap::find_start(CUdeviceptr address) const {
  const Granule* granule = granule_at(address);
  return granule != nullptr ? granule->find_start(address) : std::nullopt;
}

std::optional<AllocationMap::Found> AllocationMap::find(CUdeviceptr address) const {
  const auto holding_it = [address](const Found& found) -> std::optional<Found> {
    if (found.facts.contains(address)) return found;
    return std::nullopt;  // no allocation that begins before it does either
  };
  Search search{address, may_contain_};
  std::size_t number = address >> span_bits;
  std::size_t from = (address >> granule_bits) % granules_a_span;
  while (number < span_count) {
    number = insides_->in_use.last_before(number);
    if (number == BitLine<span_count>::none) return std::nullopt;
    if (number != address >> span_bits) from = granules_a_span - 1;
    const Span* span = span_at(number);
    for (std::size_t at = span->in_use.last_before(from); at != span->in_use.none;
         at = at == 0 ? span->in_use.none : span->in_use.last_before(at - 1)) {
      const CUdeviceptr base = CUdeviceptr{number} << span_bits | CUdeviceptr{at} << granule_bits;
      const auto found = span->granules[at].last_before(base, search);
      if (found) return holding_it(*found);
      if (search.is_in_vain()) return std::nullopt;
    }
    if (number-- == 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace cuvmm
