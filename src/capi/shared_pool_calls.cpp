// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "capi/pool_words.hpp"
#include "pool/shared_pool.hpp"

struct cuvmm_shared_pool {
  cuvmm::capi::ProcessOfOrigin origin = {};
  std::unique_ptr<cuvmm::SharedPool> models;
};

namespace cuvmm::capi {
namespace {

constexpr const char* using_shared_pool = "use a shared pool";

// Adds the model's name to the details and the message of an error.
cuvmm_status refuse_model(const Error& error, const char* model, cuvmm_error* out,
                          Stretch stretch = {}) {
  return refuse(error, out, [&](cuvmm_error& details) {
    std::snprintf(details.model, sizeof details.model, "%s", model);
    details.offset = stretch.offset;
    details.size = stretch.size;
    say_where(error, stretch, details);
    const std::string text = std::string{"model \""} + details.model + "\": " + details.message;
    std::snprintf(details.message, sizeof details.message, "%s", text.c_str());
    if (error.kind == ErrorKind::InvalidOffset) details.capacity = error.available;
    if (error.kind == ErrorKind::NotFound && error.driver_code == 0) {
      details.status = CUVMM_ERROR_MODEL_NOT_FOUND;
    }
    if (error.kind == ErrorKind::AlreadyExists) details.status = CUVMM_ERROR_MODEL_ALREADY_EXISTS;
  });
}

cuvmm_status answer(const Result<void>& result, const char* model, cuvmm_error* out,
                    Stretch stretch = {}) {
  return result.ok() ? CUVMM_OK : refuse_model(result.error(), model, out, stretch);
}

Result<ModelSettings> model_settings(std::uint64_t capacity, const cuvmm_model_options* options,
                                     const std::string& name) {
  ModelSettings settings{.capacity = capacity};
  if (options == nullptr) return settings;
  if (!is_unused(options->reserved) || options->reserved0 != 0) {
    return Error::invalid("register a model", "a reserved member is not 0");
  }
  settings.minimum = options->minimum;
  if (options->maximum != 0) settings.maximum = options->maximum;
  settings.priority = options->priority;
  if (options->reclaim != nullptr) {
    settings.reclaim = [call = options->reclaim, user = options->user, name](Size wanted) {
      const HooksRestored hooks;
      call(user, name.c_str(), wanted);
    };
  }
  if (options->lost != nullptr) {
    settings.lost = [call = options->lost, user = options->user, name](Stretch lost) {
      const HooksRestored hooks;
      call(user, name.c_str(), lost.offset, lost.size);
    };
  }
  return settings;
}

}  // namespace

cuvmm_status shared_pool_create(uint64_t physical_limit, const cuvmm_places* places,
                                cuvmm_shared_pool** pool, cuvmm_error* error) {
  if (pool == nullptr) return refuse_missing_pointer("make a shared pool", error);
  // Start the engine outside the hook bypass, inside which none is created.
  if (const auto started = engine(); !started.ok()) return refuse(started.error(), error);
  const HookBypass bypass;
  const auto all = pool_places(places);
  if (!all.ok()) return refuse(all.error(), error);
  auto made = SharedPool::create(*all, physical_limit);
  if (!made.ok()) return refuse(made.error(), error);
  *pool = new cuvmm_shared_pool{.models = std::move(*made)};
  return CUVMM_OK;
}

void shared_pool_destroy(cuvmm_shared_pool* pool) {
  destroy_with_memory(pool);
}

cuvmm_status shared_pool_register_model(cuvmm_shared_pool* pool, const char* model,
                                        uint64_t capacity, const cuvmm_model_options* options,
                                        uint64_t* base_address, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  auto settings = model_settings(capacity, options, model);
  if (!settings.ok()) return refuse_model(settings.error(), model, error);
  const auto address = pool->models->register_model(model, std::move(*settings));
  if (!address.ok()) return refuse_model(address.error(), model, error);
  if (base_address != nullptr) *base_address = *address;
  return CUVMM_OK;
}

cuvmm_status shared_pool_unregister_model(cuvmm_shared_pool* pool, const char* model,
                                          cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  return answer(pool->models->unregister_model(model), model, error);
}

cuvmm_status shared_pool_allocate(cuvmm_shared_pool* pool, const char* model, uint64_t size,
                                  uint32_t traits, cuvmm_pool_allocation* allocation,
                                  cuvmm_error* error) {
  if (pool == nullptr || model == nullptr || allocation == nullptr) {
    return refuse_missing_pointer(using_shared_pool, error);
  }
  const HookBypass bypass;
  const auto allowed = traits_of(traits);
  if (!allowed.ok()) return refuse_model(allowed.error(), model, error);
  const auto base = pool->models->base_address(model);
  if (!base.ok()) return refuse_model(base.error(), model, error);
  const auto placed = pool->models->allocate(model, size, *allowed);
  if (!placed.ok()) return refuse_model(placed.error(), model, error, {0, size});
  *allocation = {*placed, *base + *placed, size};
  return CUVMM_OK;
}

cuvmm_status shared_pool_allocate_at(cuvmm_shared_pool* pool, const char* model, uint64_t offset,
                                     uint64_t size, uint32_t traits,
                                     cuvmm_pool_allocation* allocation, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  const auto allowed = traits_of(traits);
  if (!allowed.ok()) return refuse_model(allowed.error(), model, error);
  const auto base = pool->models->base_address(model);
  if (!base.ok()) return refuse_model(base.error(), model, error);
  const auto placed = pool->models->allocate_at(model, {offset, size}, *allowed);
  if (!placed.ok()) return refuse_model(placed.error(), model, error, {offset, size});
  if (allocation != nullptr) *allocation = {offset, *base + offset, size};
  return CUVMM_OK;
}

cuvmm_status shared_pool_deallocate(cuvmm_shared_pool* pool, const char* model, uint64_t offset,
                                    uint64_t size, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  return answer(pool->models->deallocate(model, {offset, size}), model, error, {offset, size});
}

cuvmm_status shared_pool_fence(cuvmm_shared_pool* pool, const char* model, void* stream,
                               cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  return answer(pool->models->fence(model, static_cast<CUstream>(stream)), model, error);
}

cuvmm_status shared_pool_compact(cuvmm_shared_pool* pool, const char* model, cuvmm_moved moved,
                                 void* user, cuvmm_compaction* compaction, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  const auto done = pool->models->compact(model);
  if (!done.ok()) return refuse_model(done.error(), model, error);
  report(*done, moved, user, compaction);
  return CUVMM_OK;
}

cuvmm_status shared_pool_deactivate(cuvmm_shared_pool* pool, const char* model,
                                    cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  return answer(pool->models->deactivate(model), model, error);
}

cuvmm_status shared_pool_activate(cuvmm_shared_pool* pool, const char* model,
                                  cuvmm_activation* activation, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr) return refuse_missing_pointer(using_shared_pool, error);
  const HookBypass bypass;
  const auto activated = pool->models->activate(model);
  if (!activated.ok()) return refuse_model(activated.error(), model, error);
  if (activation != nullptr) {
    *activation = *activated == Activation::Kept ? CUVMM_CONTENTS_KEPT : CUVMM_CONTENTS_LOST;
  }
  return CUVMM_OK;
}

cuvmm_status shared_pool_get_model_stats(const cuvmm_shared_pool* pool, const char* model,
                                         cuvmm_model_stats* stats, cuvmm_error* error) {
  if (pool == nullptr || model == nullptr || stats == nullptr) {
    return refuse_missing_pointer(using_shared_pool, error);
  }
  const auto base = pool->models->base_address(model);
  if (!base.ok()) return refuse_model(base.error(), model, error);
  const auto found = pool->models->model_stats(model);
  if (!found.ok()) return refuse_model(found.error(), model, error);
  *stats = {.memory = stats_of(found->memory),
            .base_address = *base,
            .minimum = found->minimum,
            .maximum = found->maximum,
            .priority = found->priority,
            .is_active = found->is_active ? 1 : 0,
            .reserved = {}};
  return CUVMM_OK;
}

void shared_pool_get_stats(const cuvmm_shared_pool* pool, cuvmm_shared_pool_stats* stats) {
  if (pool == nullptr || stats == nullptr) return;
  const SharedStats all = pool->models->stats();
  *stats = {.physical_limit = all.physical_limit,
            .physical_bytes = all.physical,
            .cached_bytes = all.cached,
            .models = all.models,
            .granule = pool->models->places().granule(),
            .reserved = {}};
}

uint64_t shared_pool_trim(cuvmm_shared_pool* pool) {
  if (pool == nullptr) return 0;
  const HookBypass bypass;
  return pool->models->trim();
}

}  // namespace cuvmm::capi
