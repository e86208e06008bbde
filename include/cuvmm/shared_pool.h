/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared pools: every model has addresses, and the models in use have memory. See docs/pools.md.
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
/* Waits for all fences, then releases everything, as cuvmm_elastic_pool_destroy does. */
void cuvmm_shared_pool_destroy(cuvmm_shared_pool* pool);

/* Asks the model to release `wanted` bytes of physical memory, by any calls of this pool. Runs on
 * the thread that needs the memory. Must not throw. */
typedef void (*cuvmm_reclaim)(void* user, const char* model, uint64_t wanted);
/* Notifies the model that these bytes have lost their contents. Evicted allocations are no longer
 * allocated, and nothing is allocated in their place until this returns. Several may be evicted
 * together: during the first notice, the others are no longer allocated either. A deactivated model
 * is notified of all its bytes, and they stay allocated. On another thread, the call that allocated
 * these bytes, or that freed them, may not have returned yet. Must not throw. */
typedef void (*cuvmm_lost)(void* user, const char* model, uint64_t offset, uint64_t size);

typedef struct cuvmm_model_options {
  uint64_t minimum; /* physical memory reserved for it, used or not */
  uint64_t maximum; /* limit on its physical memory; 0: the pool's limit */
  int32_t priority; /* a model never loses memory to one of lower priority */
  int32_t reserved0;
  cuvmm_reclaim reclaim; /* may be NULL */
  cuvmm_lost lost;       /* may be NULL */
  void* user;            /* passed to the callbacks; valid until the model is unregistered */
  uint64_t reserved[8];
} cuvmm_model_options;

/* Sets *base_address to the model's first address. `options` and `base_address` may be NULL. */
cuvmm_status cuvmm_shared_pool_register_model(cuvmm_shared_pool* pool, const char* model,
                                              uint64_t capacity, const cuvmm_model_options* options,
                                              uint64_t* base_address, cuvmm_error* error);
/* Releases everything that the model holds. Waits for its fences, and for its callbacks on other
 * threads. */
cuvmm_status cuvmm_shared_pool_unregister_model(cuvmm_shared_pool* pool, const char* model,
                                                cuvmm_error* error);

/* Like the calls of an elastic pool; offsets are relative to the model's base address. If the limit
 * is reached, the pool reclaims memory from other models. */
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
  CUVMM_CONTENTS_LOST = 1 /* the memory is new and its contents are undefined */
} cuvmm_activation;

/* Unmaps all of the model's memory and keeps it. When the pool reclaims from this model, it takes
 * this memory first, without calling `reclaim`. Waits for the model's fences; no thread may submit
 * work that uses the model's memory during the call. */
cuvmm_status cuvmm_shared_pool_deactivate(cuvmm_shared_pool* pool, const char* model,
                                          cuvmm_error* error);
/* Maps the model's memory at its old addresses. `activation` may be NULL. */
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
  uint64_t physical_bytes; /* the sum over all models */
  uint64_t cached_bytes;   /* free chunks kept by the places */
  uint64_t models;
  uint64_t granule;
  uint64_t reserved[8];
} cuvmm_shared_pool_stats;

void cuvmm_shared_pool_get_stats(const cuvmm_shared_pool* pool, cuvmm_shared_pool_stats* stats);
/* Returns the cached memory of the pool's places to the driver. Returns the number of bytes. */
uint64_t cuvmm_shared_pool_trim(cuvmm_shared_pool* pool);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SHARED_POOL_H */
