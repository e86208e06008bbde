/* SPDX-License-Identifier: Apache-2.0
 *
 * Elastic pools: reserved addresses that get memory as they are allocated. A granule's memory
 * becomes free with its last byte: it is kept for later allocations of any pool until
 * cuvmm_elastic_pool_trim, or until a pool is destroyed, returns it to the driver. See
 * docs/pools.md.
 */
#ifndef CUVMM_ELASTIC_POOL_H
#define CUVMM_ELASTIC_POOL_H

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuvmm_elastic_pool cuvmm_elastic_pool;

/* The place from which a granule is taken first. Full places are skipped. */
typedef enum cuvmm_placement {
  CUVMM_PLACE_PACK = 0,           /* the devices in the order given: as few as possible */
  CUVMM_PLACE_STRIPE = 1,         /* neighbouring granules on devices in turn */
  CUVMM_PLACE_LOCAL_THEN_PEER = 2 /* the device of the caller's current context first */
} cuvmm_placement;

typedef enum cuvmm_host_use {
  CUVMM_HOST_NEVER = 0,
  CUVMM_HOST_LAST = 1, /* when the devices are full */
  CUVMM_HOST_ONLY = 2
} cuvmm_host_use;

/* Where pools take memory from. All devices can access all of it. A zeroed struct means device 0
 * alone, with the recommended granule. */
typedef struct cuvmm_places {
  uint64_t granule;       /* a power of two, at least 64 KiB and a multiple of the driver's */
  const int32_t* devices; /* read during the call only */
  uint64_t device_count;
  int32_t placement; /* a cuvmm_placement */
  int32_t host;      /* a cuvmm_host_use */
  int32_t host_node; /* NUMA node */
  int32_t shareable; /* 1: device memory can be granted to other processes
                        (cuvmm_share_send_of_pool), and takes longer to create; else 0 */
  uint64_t reserved[8];
} cuvmm_places;

#define CUVMM_MOST_PLACES 65

typedef struct cuvmm_elastic_pool_options {
  cuvmm_places places;
  uint64_t
      most_capacity; /* how far it may grow; 0: four times the capacity if free, else capacity */
  uint64_t physical_limit; /* of this pool; 0: whatever the devices and VMM_LIMIT allow */
  uint64_t reserved[8];
} cuvmm_elastic_pool_options;

/* What the pool may do with an allocation. */
enum {
  CUVMM_MOVABLE = 1,  /* compaction may give it another offset, and reports the move */
  CUVMM_EVICTABLE = 2 /* shared pools only: reclaim may take it, contents included. It is then no
                         longer allocated, and the model is notified */
};

/* Reserves `capacity` bytes of addresses, rounded up to granules. `options` may be NULL. */
cuvmm_status cuvmm_elastic_pool_create(uint64_t capacity, const cuvmm_elastic_pool_options* options,
                                       cuvmm_elastic_pool** pool, cuvmm_error* error);
/* Waits for the pool's fences, then releases everything, and free memory too (but not under `cuvmm
 * run`, where the program's other allocations can use it). NULL is allowed. In a forked child it
 * does nothing. */
void cuvmm_elastic_pool_destroy(cuvmm_elastic_pool* pool);

uint64_t cuvmm_elastic_pool_base_address(const cuvmm_elastic_pool* pool);
uint64_t cuvmm_elastic_pool_capacity(const cuvmm_elastic_pool* pool);
uint64_t cuvmm_elastic_pool_granule(const cuvmm_elastic_pool* pool);

/* Where an allocation lies. A pool's calls take the offset; kernels and the driver take the
 * address, which is the pool's base address plus the offset. */
typedef struct cuvmm_pool_allocation {
  uint64_t offset;
  uint64_t address;
  uint64_t size; /* as requested */
} cuvmm_pool_allocation;

/* Allocates at any free offset that is a multiple of 512 bytes. Allocating never remaps live bytes,
 * so it needs no fence and waits for none. */
cuvmm_status cuvmm_elastic_pool_allocate(cuvmm_elastic_pool* pool, uint64_t size, uint32_t traits,
                                         cuvmm_pool_allocation* allocation, cuvmm_error* error);
/* Allocates at exactly `offset`, which need not be aligned. `allocation` may be NULL. Fails with
 * CUVMM_ERROR_ALREADY_MAPPED if any byte is allocated or withheld: compact() lets granules share
 * memory, and bytes allocated in one of them are withheld in the others until they are freed. After
 * such a failure, the next compact() gives the granules memory of their own again, if available. */
cuvmm_status cuvmm_elastic_pool_allocate_at(cuvmm_elastic_pool* pool, uint64_t offset,
                                            uint64_t size, uint32_t traits,
                                            cuvmm_pool_allocation* allocation, cuvmm_error* error);
/* Frees any allocated bytes: an allocation, a part of one, or several adjacent ones. Waits for the
 * pool's fences. */
cuvmm_status cuvmm_elastic_pool_deallocate(cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size,
                                           cuvmm_error* error);
/* Returns 1 if every byte is allocated and has memory, else 0; 0 beyond the capacity. */
int32_t cuvmm_elastic_pool_is_mapped(const cuvmm_elastic_pool* pool, uint64_t offset,
                                     uint64_t size);

/* Grows the pool, up to most_capacity. Adds addresses only, and moves nothing. */
cuvmm_status cuvmm_elastic_pool_grow(cuvmm_elastic_pool* pool, uint64_t capacity,
                                     cuvmm_error* error);
/* Returns the cached memory of the pool's places to the driver. Returns the number of bytes. */
uint64_t cuvmm_elastic_pool_trim(cuvmm_elastic_pool* pool);

/* Declares that the work submitted to the stream so far uses the pool: nothing is unmapped, moved
 * or freed before that work is done. `stream` is a CUstream; the default streams are those of the
 * current context.
 *
 * Only compact(), deactivate() and the eviction of evictable allocations remap live memory. They
 * wait until no fenced work is left. If new fences keep arriving, compact() and deactivate() fail
 * with CUVMM_ERROR_TIMED_OUT, and an eviction takes nothing. */
cuvmm_status cuvmm_elastic_pool_fence(cuvmm_elastic_pool* pool, void* stream, cuvmm_error* error);

typedef struct cuvmm_move {
  uint64_t from;
  uint64_t to;
  uint64_t size;
} cuvmm_move;

/* Called for each movable allocation after it has been moved. */
typedef void (*cuvmm_moved)(void* user, const cuvmm_move* move);

typedef struct cuvmm_compaction {
  uint64_t moves;
  uint64_t physical_released; /* by moving and sharing */
  uint64_t cached_released;   /* free chunks returned to the driver */
  uint64_t reserved[5];
} cuvmm_compaction;

/* Waits for the pool's fences, then packs movable allocations into fewer granules, maps one chunk
 * behind granules whose allocated bytes do not overlap, and returns cached memory to the driver.
 * Only movable allocations ever change their address. Until the call returns, no thread may submit
 * work that uses the pool, fenced or not. `moved` and `compaction` may be NULL. */
cuvmm_status cuvmm_elastic_pool_compact(cuvmm_elastic_pool* pool, cuvmm_moved moved, void* user,
                                        cuvmm_compaction* compaction, cuvmm_error* error);

typedef struct cuvmm_elastic_pool_stats {
  uint64_t capacity; /* addresses */
  uint64_t allocated_bytes;
  uint64_t physical_bytes;  /* chunks that the pool holds; a chunk shared by granules counts once */
  uint64_t mapped_granules; /* granules with memory behind them */
  uint64_t free_bytes;      /* unallocated addresses */
  uint64_t largest_free;    /* the largest allocation that would fit */
  double fragmentation;     /* 1 - largest_free / free_bytes */
  uint64_t reserved[8];
} cuvmm_elastic_pool_stats;

/* Takes constant time, whatever the pool holds. */
void cuvmm_elastic_pool_get_stats(const cuvmm_elastic_pool* pool, cuvmm_elastic_pool_stats* stats);

typedef struct cuvmm_place_stats {
  int32_t is_host;
  int32_t id; /* device, or NUMA node */
  uint64_t physical_bytes;
} cuvmm_place_stats;

/* The pool's memory by place. Writes up to `most` entries and returns how many there are. */
uint64_t cuvmm_elastic_pool_get_places(const cuvmm_elastic_pool* pool, cuvmm_place_stats* places,
                                       uint64_t most);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_ELASTIC_POOL_H */
