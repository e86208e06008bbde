// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cuvmm/elastic_pool.h"
#include "cuvmm/result.hpp"

namespace cuvmm {
inline namespace v1 {

enum class Placement : std::int32_t {
  Pack = CUVMM_PLACE_PACK,
  Stripe = CUVMM_PLACE_STRIPE,
  LocalThenPeer = CUVMM_PLACE_LOCAL_THEN_PEER,
};
enum class HostUse : std::int32_t {
  Never = CUVMM_HOST_NEVER,
  Last = CUVMM_HOST_LAST,
  Only = CUVMM_HOST_ONLY,
};
enum class Traits : std::uint32_t {
  None = 0,
  Movable = CUVMM_MOVABLE,
  Evictable = CUVMM_EVICTABLE
};
constexpr Traits operator|(Traits a, Traits b) {
  return static_cast<Traits>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

// Where pools take memory from. All devices can access all of it.
struct Places {
  std::uint64_t granule = 0;  // 0: the recommended granule
  std::vector<std::int32_t> devices = {0};
  Placement placement = Placement::Pack;
  HostUse host = HostUse::Never;
  std::int32_t host_node = 0;
  bool shareable = false;  // device memory can be granted to other processes

  // For the C API. Valid until this object is changed or destroyed.
  cuvmm_places in_c() const {
    cuvmm_places places{};
    places.granule = granule;
    places.devices = devices.data();
    places.device_count = devices.size();
    places.placement = static_cast<std::int32_t>(placement);
    places.host = static_cast<std::int32_t>(host);
    places.host_node = host_node;
    places.shareable = shareable ? 1 : 0;
    return places;
  }
};

using ElasticPoolStats = cuvmm_elastic_pool_stats;
using PlaceStats = cuvmm_place_stats;
using Move = cuvmm_move;

// Bytes allocated in a pool. A pool's calls take the offset; kernels and the driver take the
// address, which stays valid until the bytes are freed or, if movable, until compact() moves them.
struct PoolAllocation {
  std::uint64_t offset = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};

struct Compaction {
  std::vector<Move> moves;
  std::uint64_t physical_released = 0;
  std::uint64_t cached_released = 0;
};

namespace detail {
template <class Call>
Result<PoolAllocation> allocation(Call&& call) {
  const auto made = answer_with<cuvmm_pool_allocation>(std::forward<Call>(call));
  if (!made.ok()) return made.error();
  return PoolAllocation{.offset = made->offset, .address = made->address, .size = made->size};
}
inline void remember_move(void* moves, const cuvmm_move* move) {
  static_cast<std::vector<Move>*>(moves)->push_back(*move);
}
inline Result<Compaction> compaction(cuvmm_status status, const cuvmm_error& error,
                                     std::vector<Move>&& moves, const cuvmm_compaction& counts) {
  if (status != CUVMM_OK) return Error{error};
  return Compaction{.moves = std::move(moves),
                    .physical_released = counts.physical_released,
                    .cached_released = counts.cached_released};
}
}  // namespace detail

// Reserved addresses that get memory as they are allocated. Each member function wraps the C
// function of the same name (elastic_pool.h, which has the contracts). Thread-safe.
class ElasticPool {
 public:
  struct Options {
    Places places;
    std::uint64_t most_capacity = 0;   // how far it may grow; 0: four times the capacity
    std::uint64_t physical_limit = 0;  // 0: whatever the devices and VMM_LIMIT allow
  };

  static Result<ElasticPool> create(std::uint64_t capacity) { return create(capacity, Options{}); }
  static Result<ElasticPool> create(std::uint64_t capacity, const Options& options) {
    cuvmm_elastic_pool_options in_c{};
    in_c.places = options.places.in_c();
    in_c.most_capacity = options.most_capacity;
    in_c.physical_limit = options.physical_limit;
    cuvmm_error error{};
    cuvmm_elastic_pool* pool = nullptr;
    if (cuvmm_elastic_pool_create(capacity, &in_c, &pool, &error) != CUVMM_OK) return Error{error};
    return ElasticPool{pool};
  }
  ElasticPool(ElasticPool&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
  ElasticPool& operator=(ElasticPool&& other) noexcept {
    std::swap(pool_, other.pool_);
    return *this;
  }
  ~ElasticPool() { cuvmm_elastic_pool_destroy(pool_); }

  cuvmm_elastic_pool* get() const { return pool_; }
  std::uint64_t base_address() const { return cuvmm_elastic_pool_base_address(pool_); }
  std::uint64_t capacity() const { return cuvmm_elastic_pool_capacity(pool_); }
  std::uint64_t granule() const { return cuvmm_elastic_pool_granule(pool_); }

  // Allocates at any free offset.
  Result<PoolAllocation> allocate(std::uint64_t size, Traits traits = Traits::None) {
    return detail::allocation([&](auto* allocation, cuvmm_error* error) {
      return cuvmm_elastic_pool_allocate(pool_, size, static_cast<std::uint32_t>(traits),
                                         allocation, error);
    });
  }
  // Allocates at exactly `offset`.
  Result<PoolAllocation> allocate_at(std::uint64_t offset, std::uint64_t size,
                                     Traits traits = Traits::None) {
    return detail::allocation([&](auto* allocation, cuvmm_error* error) {
      return cuvmm_elastic_pool_allocate_at(pool_, offset, size, static_cast<std::uint32_t>(traits),
                                            allocation, error);
    });
  }
  Result<void> deallocate(const PoolAllocation& allocation) {
    return deallocate(allocation.offset, allocation.size);
  }
  // Frees any allocated bytes: a part of an allocation, or several adjacent ones.
  Result<void> deallocate(std::uint64_t offset, std::uint64_t size) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_elastic_pool_deallocate(pool_, offset, size, error);
    });
  }
  bool is_mapped(std::uint64_t offset, std::uint64_t size = 1) const {
    return cuvmm_elastic_pool_is_mapped(pool_, offset, size) != 0;
  }

  Result<void> grow(std::uint64_t capacity) {
    return detail::answer(
        [&](cuvmm_error* error) { return cuvmm_elastic_pool_grow(pool_, capacity, error); });
  }
  std::uint64_t trim() { return cuvmm_elastic_pool_trim(pool_); }
  // `stream` is a CUstream.
  Result<void> fence(void* stream) {
    return detail::answer(
        [&](cuvmm_error* error) { return cuvmm_elastic_pool_fence(pool_, stream, error); });
  }
  Result<Compaction> compact() {
    cuvmm_error error{};
    cuvmm_compaction counts{};
    std::vector<Move> moves;
    const cuvmm_status status =
        cuvmm_elastic_pool_compact(pool_, &detail::remember_move, &moves, &counts, &error);
    return detail::compaction(status, error, std::move(moves), counts);
  }

  ElasticPoolStats stats() const {
    ElasticPoolStats stats{};
    cuvmm_elastic_pool_get_stats(pool_, &stats);
    return stats;
  }
  std::vector<PlaceStats> places() const {
    std::vector<PlaceStats> places(CUVMM_MOST_PLACES);
    places.resize(cuvmm_elastic_pool_get_places(pool_, places.data(), places.size()));
    return places;
  }

  cuvmm_elastic_pool* in_c() const { return pool_; }

 private:
  explicit ElasticPool(cuvmm_elastic_pool* pool) : pool_(pool) {}
  cuvmm_elastic_pool* pool_;
};

}  // namespace v1
}  // namespace cuvmm
