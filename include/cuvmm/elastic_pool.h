/* SPDX-License-Identifier: Apache-2.0
 *
 * Elastic pools: a stretch of addresses whose memory comes as it is allocated and goes with a
 * granule's last byte. docs/pools.md tells more.
 */
#ifndef CUVMM_ELASTIC_POOL_H
#define CUVMM_ELASTIC_POOL_H

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuvmm_elastic_pool cuvmm_elastic_pool;

/* Which place a granule is taken from first. A place that is full is passed over. */
typedef enum cuvmm_placement {
  CUVMM_PLACE_PACK = 0,           /* in the order of the devices: as few as possible */
  CUVMM_PLACE_STRIPE = 1,         /* neighbouring granules on devices in turn */
  CUVMM_PLACE_LOCAL_THEN_PEER = 2 /* the device of the caller's current context first */
} cuvmm_placement;

typedef enum cuvmm_host_use {
  CUVMM_HOST_NEVER = 0,
  CUVMM_HOST_LAST = 1, /* when the devices are full */
  CUVMM_HOST_ONLY = 2
} cuvmm_host_use;

/* Where pools take memory from. All devices may use all of it. Zeros mean: device 0 alone, with the
 * recommended granule. */
typedef struct cuvmm_places {
  uint64_t granule;       /* a power of two from 64 KiB up, a multiple of the driver's */
  const int32_t* devices; /* read during the call only */
  uint64_t device_count;
  int32_t placement; /* a cuvmm_placement */
  int32_t host;      /* a cuvmm_host_use */
  int32_t host_node; /* NUMA node */
  int32_t shareable; /* 1: memory of devices can be granted to other processes
                        (cuvmm_share_send_of_pool), which takes longer to make; else 0 */
  uint64_t reserved[8];
} cuvmm_places;

#define CUVMM_MOST_PLACES 65

typedef struct cuvmm_elastic_pool_options {
  cuvmm_places places;
  uint64_t
      most_capacity; /* how far it may grow; 0: four times the capacity, where that can be had */
  uint64_t physical_limit; /* of this pool; 0: what the devices and VMM_LIMIT leave */
  uint64_t reserved[8];
} cuvmm_elastic_pool_options;

/* What an allocation allows to be done with it. */
enum {
  CUVMM_MOVABLE = 1,  /* compaction may give it another offset, and says so */
  CUVMM_EVICTABLE = 2 /* of a shared pool's model: may be taken, contents and all; it is then no
                         longer allocated, and the model is told */
};

/* `capacity` bytes of addresses, rounded up to granules. `options` may be NULL. */
cuvmm_status cuvmm_elastic_pool_create(uint64_t capacity, const cuvmm_elastic_pool_options* options,
                                       cuvmm_elastic_pool** pool, cuvmm_error* error);
/* Waits for the pool's fences, and gives everything back. NULL is allowed. */
void cuvmm_elastic_pool_destroy(cuvmm_elastic_pool* pool);

uint64_t cuvmm_elastic_pool_base_address(const cuvmm_elastic_pool* pool);
uint64_t cuvmm_elastic_pool_capacity(const cuvmm_elastic_pool* pool);
uint64_t cuvmm_elastic_pool_granule(const cuvmm_elastic_pool* pool);

/* Where an allocation lies. A pool's calls take the offset; kernels and the driver take the
 * address, which is the pool's base address + offset. */
typedef struct cuvmm_pool_allocation {
  uint64_t offset;
  uint64_t address;
  uint64_t size; /* as it was asked for */
} cuvmm_pool_allocation;

/* Allocates where there is room, at a multiple of 512 bytes. Allocating never changes what is
 * mapped behind live bytes, so it needs no fence and waits for none. */
cuvmm_status cuvmm_elastic_pool_allocate(cuvmm_elastic_pool* pool, uint64_t size, uint32_t traits,
                                         cuvmm_pool_allocation* allocation, cuvmm_error* error);
/* Allocates at that offset, which may be any. `allocation` may be NULL. CUVMM_ERROR_ALREADY_MAPPED
 * if a byte of it is allocated, or withheld: compact() lets granules share memory, and bytes that
 * one of them has are withheld in the others until it frees them. The next compact() gives granules
 * where this was refused memory of their own again, if there is any. */
cuvmm_status cuvmm_elastic_pool_allocate_at(cuvmm_elastic_pool* pool, uint64_t offset,
                                            uint64_t size, uint32_t traits,
                                            cuvmm_pool_allocation* allocation, cuvmm_error* error);
/* Any bytes that are allocated: an allocation, a part of one, or several side by side. Waits for
 * the pool's fences. */
cuvmm_status cuvmm_elastic_pool_deallocate(cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size,
                                           cuvmm_error* error);
/* 1 where every byte is allocated and has memory; 0 beyond the capacity. */
int32_t cuvmm_elastic_pool_is_mapped(const cuvmm_elastic_pool* pool, uint64_t offset,
                                     uint64_t size);

/* Up to most_capacity. Takes addresses only, and moves nothing. */
cuvmm_status cuvmm_elastic_pool_grow(cuvmm_elastic_pool* pool, uint64_t capacity,
                                     cuvmm_error* error);
/* Gives the cached memory of the pool's places back to the driver; returns how many bytes. */
uint64_t cuvmm_elastic_pool_trim(cuvmm_elastic_pool* pool);

/* What the stream has been given so far uses the pool: nothing is unmapped, moved or freed before
 * it is done. `stream` is a CUstream; the default streams are those of the current context.
 *
 * Live memory is mapped anew by compact(), deactivate() and the eviction of evictable allocations
 * alone. They wait until no fenced work is left, and answer CUVMM_ERROR_TIMED_OUT (an eviction
 * takes nothing) where fences keep coming. */
cuvmm_status cuvmm_elastic_pool_fence(cuvmm_elastic_pool* pool, void* stream, cuvmm_error* error);

typedef struct cuvmm_move {
  uint64_t from;
  uint64_t to;
  uint64_t size;
} cuvmm_move;

/* Called for each movable allocation that has been moved, after it has. */
typedef void (*cuvmm_moved)(void* user, const cuvmm_move* move);

typedef struct cuvmm_compaction {
  uint64_t moves;
  uint64_t physical_released; /* by moving and sharing */
  uint64_t cached_released;   /* free chunks given back to the driver */
  uint64_t reserved[5];
} cuvmm_compaction;

/* Waits for the pool's fences. From the call to its return no thread may submit work that uses the
 * pool, fenced or not. Movable allocations are packed into fewer granules, granules whose bytes are
 * not in each other's way get one chunk, and cached memory is given back. Nothing else changes its
 * address, ever.
 * `moved` and `compaction` may be NULL. */
cuvmm_status cuvmm_elastic_pool_compact(cuvmm_elastic_pool* pool, cuvmm_moved moved, void* user,
                                        cuvmm_compaction* compaction, cuvmm_error* error);

typedef struct cuvmm_elastic_pool_stats {
  uint64_t capacity; /* addresses */
  uint64_t allocated_bytes;
  uint64_t physical_bytes;  /* chunks that the pool holds; what granules share counts once */
  uint64_t mapped_granules; /* granules with memory behind them */
  uint64_t free_bytes;      /* addresses that nobody has */
  uint64_t largest_free;    /* the largest allocation that finds a place */
  double fragmentation;     /* 1 - largest_free / free_bytes */
  uint64_t reserved[8];
} cuvmm_elastic_pool_stats;

/* The same cost whatever the pool holds. */
void cuvmm_elastic_pool_get_stats(const cuvmm_elastic_pool* pool, cuvmm_elastic_pool_stats* stats);

typedef struct cuvmm_place_stats {
  int32_t is_host;
  int32_t id; /* device, or NUMA node */
  uint64_t physical_bytes;
} cuvmm_place_stats;

/* The pool's memory by place: writes up to `most`, returns how many there are. */
uint64_t cuvmm_elastic_pool_get_places(const cuvmm_elastic_pool* pool, cuvmm_place_stats* places,
                                       uint64_t most);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_ELASTIC_POOL_H */
