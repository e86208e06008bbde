// SPDX-License-Identifier: Apache-2.0
// Converts between the types of the C API and those of src/pool.
#pragma once

#include <algorithm>
#include <iterator>

#include "capi/answer.hpp"
#include "capi/engine_of_process.hpp"
#include "capi/origin.hpp"
#include "capi/table.hpp"
#include "pool/elastic_pool.hpp"

// The object behind the C API's opaque pointer.
struct cuvmm_elastic_pool {
  cuvmm::capi::ProcessOfOrigin origin = {};
  std::unique_ptr<cuvmm::ElasticPool> memory;
};

namespace cuvmm::capi {

// Fields reserved for later versions must be 0, so that a later version can give them a meaning.
template <class Reserved>
bool is_unused(const Reserved& reserved) {
  return std::all_of(std::begin(reserved), std::end(reserved), [](auto one) { return one == 0; });
}

Result<PlaceSettings> place_settings(const cuvmm_places* places);
Result<std::shared_ptr<const PoolPlaces>> pool_places(const cuvmm_places* places);
Result<AllocationTraits> traits_of(std::uint32_t traits);
cuvmm_elastic_pool_stats stats_of(const ElasticStats& stats);
// Calls `moved` for each move, and fills in `counts` unless it is null.
void report(const PoolCompaction& done, cuvmm_moved moved, void* user, cuvmm_compaction* counts);

// Names the conflicting place, if the error is about one.
void say_where(const Error& error, Stretch stretch, cuvmm_error& details);

inline auto where(const Error& error, Stretch stretch, std::uint64_t capacity) {
  return [=](cuvmm_error& details) {
    details.offset = stretch.offset;
    details.size = stretch.size;
    details.capacity = capacity;
    say_where(error, stretch, details);
  };
}

}  // namespace cuvmm::capi
