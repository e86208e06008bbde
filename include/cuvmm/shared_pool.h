/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared pools: many models' addresses over memory for those that work now. docs/pools.md tells
 * more.
 */
#ifndef CUVMM_SHARED_POOL_H
#define CUVMM_SHARED_POOL_H

#include "cuvmm/elastic_pool.h"
#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuvmm_shared_pool cuvmm_shared_pool;

/* `places` may be NULL. */
cuvmm_status cuvmm_shared_pool_create(uint64_t physical_limit, const cuvmm_places* places,
                                      cuvmm_shared_pool** pool, cuvmm_error* error);
/* Waits for all fences, and gives everything back. NULL is allowed. */
void cuvmm_shared_pool_destroy(cuvmm_shared_pool* pool);

/* The model is asked to give `wanted` bytes of physical memory back, by whatever calls of this
 * pool. On the thread of who needs them. */
typedef void (*cuvmm_reclaim)(void* user, const char* model, uint64_t wanted);
/* The model has lost what these bytes held. An evictable allocation that this was is allocated no
 * more; of a deactivated model all bytes are named, and stay allocated. */
typedef void (*cuvmm_lost)(void* user, const char* model, uint64_t offset, uint64_t size);

typedef struct cuvmm_model_options {
  uint64_t minimum; /* physical memory that is always there for it */
  uint64_t maximum; /* physical memory that it never goes beyond; 0: the pool's limit */
  int32_t priority; /* memory is reclaimed from no model of higher priority than who needs it */
  int32_t reserved0;
  cuvmm_reclaim reclaim; /* may be NULL */
  cuvmm_lost lost;       /* may be NULL */
  void* user;            /* what callbacks are given; until the model is unregistered */
  uint64_t reserved[8];
} cuvmm_model_options;

/* `options` may be NULL. *base_address may be NULL too, and is the model's first address. */
cuvmm_status cuvmm_shared_pool_register_model(cuvmm_shared_pool* pool, const char* model,
                                              uint64_t capacity, const cuvmm_model_options* options,
                                              uint64_t* base_address, cuvmm_error* error);
/* Gives everything of it back. Waits for its fences, and for its callbacks on other threads. */
cuvmm_status cuvmm_shared_pool_unregister_model(cuvmm_shared_pool* pool, const char* model,
                                                cuvmm_error* error);

/* As those of an elastic pool; offsets begin at the model's base address. If the limit is reached,
 * memory is reclaimed from other models. */
cuvmm_status cuvmm_shared_pool_allocate(cuvmm_shared_pool* pool, const char* model, uint64_t size,
                                        uint32_t traits, cuvmm_pool_allocation* allocation,
                                        cuvmm_error* error);
cuvmm_status cuvmm_shared_pool_allocate_at(cuvmm_shared_pool* pool, const char* model,
                                           uint64_t offset, uint64_t size, uint32_t traits,
                                           cuvmm_pool_allocation* allocation, cuvmm_error* error);
cuvmm_status cuvmm_shared_pool_deallocate(cuvmm_shared_pool* pool, const char* model,
                                          uint64_t offset, uint64_t size, cuvmm_error* error);
cuvmm_status cuvmm_shared_pool_fence(cuvmm_shared_pool* pool, const char* model, void* stream,
                                     cuvmm_error* error);
cuvmm_status cuvmm_shared_pool_compact(cuvmm_shared_pool* pool, const char* model,
                                       cuvmm_moved moved, void* user, cuvmm_compaction* compaction,
                                       cuvmm_error* error);

typedef enum cuvmm_activation {
  CUVMM_CONTENTS_KEPT = 0,
  CUVMM_CONTENTS_LOST = 1 /* the memory is new: what it holds means nothing */
} cuvmm_activation;

/* Unmaps all memory of the model, which then is what is taken first when others need memory. Waits
 * for its fences; no thread may submit work that uses it meanwhile. */
cuvmm_status cuvmm_shared_pool_deactivate(cuvmm_shared_pool* pool, const char* model,
                                          cuvmm_error* error);
/* Maps it at its old addresses. `activation` may be NULL. */
cuvmm_status cuvmm_shared_pool_activate(cuvmm_shared_pool* pool, const char* model,
                                        cuvmm_activation* activation, cuvmm_error* error);

typedef struct cuvmm_model_stats {
  cuvmm_elastic_pool_stats memory;
  uint64_t base_address;
  uint64_t minimum;
  uint64_t maximum; /* UINT64_MAX: the pool's limit */
  int32_t priority;
  int32_t is_active;
  uint64_t reserved[8];
} cuvmm_model_stats;

cuvmm_status cuvmm_shared_pool_get_model_stats(const cuvmm_shared_pool* pool, const char* model,
                                               cuvmm_model_stats* stats, cuvmm_error* error);

typedef struct cuvmm_shared_pool_stats {
  uint64_t physical_limit;
  uint64_t physical_bytes; /* of all models: the sum of theirs */
  uint64_t cached_bytes;   /* free chunks kept by the places */
  uint64_t models;
  uint64_t granule;
  uint64_t reserved[8];
} cuvmm_shared_pool_stats;

void cuvmm_shared_pool_get_stats(const cuvmm_shared_pool* pool, cuvmm_shared_pool_stats* stats);
/* Gives the cached memory of the pool's places back to the driver; returns how many bytes. */
uint64_t cuvmm_shared_pool_trim(cuvmm_shared_pool* pool);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SHARED_POOL_H */
