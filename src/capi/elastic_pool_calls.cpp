// SPDX-License-Identifier: Apache-2.0
#include "capi/pool_words.hpp"

namespace cuvmm::capi {
namespace {

constexpr const char* using_elastic_pool = "use an elastic pool";

Result<std::unique_ptr<ElasticPool>> create(std::uint64_t capacity,
                                            const cuvmm_elastic_pool_options* options) {
  ElasticPool::Settings settings{.capacity = capacity};
  if (options != nullptr) {
    if (!is_unused(options->reserved)) {
      return Error::invalid("make an elastic pool", "a reserved member is not 0");
    }
    settings.most_capacity = options->most_capacity;
    if (options->physical_limit != 0) settings.physical_limit = options->physical_limit;
  }
  const auto places = TRY(pool_places(options != nullptr ? &options->places : nullptr));
  return ElasticPool::create(places, settings);
}

}  // namespace

cuvmm_status elastic_pool_create(uint64_t capacity, const cuvmm_elastic_pool_options* options,
                                 cuvmm_elastic_pool** pool, cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer("make an elastic pool", error);
  // Start the engine outside the hook bypass, inside which none is created.
  if (const auto started = engine(); !started.ok()) return refuse(started.error(), error);
  const HookBypass bypass;
  auto made = create(capacity, options);
  if (!made.ok()) return refuse(made.error(), error);
  *pool = new cuvmm_elastic_pool{.memory = std::move(*made)};
  return CUVMM_OK;
}

void elastic_pool_destroy(cuvmm_elastic_pool* pool) {
  destroy_with_memory(pool);
}

uint64_t elastic_pool_base_address(const cuvmm_elastic_pool* pool) {
  return pool != nullptr ? pool->memory->base_address() : 0;
}

uint64_t elastic_pool_capacity(const cuvmm_elastic_pool* pool) {
  return pool != nullptr ? pool->memory->capacity() : 0;
}

uint64_t elastic_pool_granule(const cuvmm_elastic_pool* pool) {
  return pool != nullptr ? pool->memory->granule() : 0;
}

cuvmm_status elastic_pool_allocate(cuvmm_elastic_pool* pool, uint64_t size, uint32_t traits,
                                   cuvmm_pool_allocation* allocation, cuvmm_error* error) {
  if (pool == nullptr || allocation == nullptr)
    return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto allowed = traits_of(traits);
  if (!allowed.ok()) return refuse(allowed.error(), error);
  const auto placed = pool->memory->allocate(size, *allowed);
  if (!placed.ok()) {
    return refuse(placed.error(), error,
                  where(placed.error(), {0, size}, elastic_pool_capacity(pool)));
  }
  *allocation = {*placed, pool->memory->base_address() + *placed, size};
  return CUVMM_OK;
}

cuvmm_status elastic_pool_allocate_at(cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size,
                                      uint32_t traits, cuvmm_pool_allocation* allocation,
                                      cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto allowed = traits_of(traits);
  if (!allowed.ok()) return refuse(allowed.error(), error);
  const auto placed = pool->memory->allocate_at({offset, size}, *allowed);
  if (!placed.ok()) {
    return refuse(placed.error(), error,
                  where(placed.error(), {offset, size}, elastic_pool_capacity(pool)));
  }
  if (allocation != nullptr) *allocation = {offset, pool->memory->base_address() + offset, size};
  return CUVMM_OK;
}

cuvmm_status elastic_pool_deallocate(cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size,
                                     cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto freed = pool->memory->deallocate({offset, size});
  if (freed.ok()) return CUVMM_OK;
  return refuse(freed.error(), error,
                where(freed.error(), {offset, size}, elastic_pool_capacity(pool)));
}

int32_t elastic_pool_is_mapped(const cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size) {
  return pool != nullptr && pool->memory->is_mapped({offset, size}) ? 1 : 0;
}

cuvmm_status elastic_pool_grow(cuvmm_elastic_pool* pool, uint64_t capacity, cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto grown = pool->memory->grow(capacity);
  return grown.ok() ? CUVMM_OK : refuse(grown.error(), error);
}

uint64_t elastic_pool_trim(cuvmm_elastic_pool* pool) {
  if (pool == nullptr) return 0;
  const HookBypass bypass;
  return pool->memory->trim();
}

cuvmm_status elastic_pool_fence(cuvmm_elastic_pool* pool, void* stream, cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto fenced = pool->memory->fence(static_cast<CUstream>(stream));
  return fenced.ok() ? CUVMM_OK : refuse(fenced.error(), error);
}

cuvmm_status elastic_pool_compact(cuvmm_elastic_pool* pool, cuvmm_moved moved, void* user,
                                  cuvmm_compaction* compaction, cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer(using_elastic_pool, error);
  const HookBypass bypass;
  const auto done = pool->memory->compact();
  if (!done.ok()) return refuse(done.error(), error);
  report(*done, moved, user, compaction);
  return CUVMM_OK;
}

void elastic_pool_get_stats(const cuvmm_elastic_pool* pool, cuvmm_elastic_pool_stats* stats) {
  if (pool != nullptr && stats != nullptr) *stats = stats_of(pool->memory->stats());
}

uint64_t elastic_pool_get_places(const cuvmm_elastic_pool* pool, cuvmm_place_stats* places,
                                 uint64_t most) {
  if (pool == nullptr) return 0;
  const ElasticStats stats = pool->memory->stats();
  const PoolPlaces& all = pool->memory->places();
  for (std::size_t i = 0; places != nullptr && i < all.count() && i < most; ++i) {
    places[i] = {.is_host = all.location(i).is_host() ? 1 : 0,
                 .id = all.location(i).id(),
                 .physical_bytes = stats.physical_at[i]};
  }
  return all.count();
}

}  // namespace cuvmm::capi
