/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine behind all calls of the library. A process has one, so that memory is counted once:
 * the preload library's if the program runs under it, otherwise the library's own, which the first
 * call that needs it creates.
 */
#ifndef CUVMM_ENGINE_H
#define CUVMM_ENGINE_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the loaded library: CUVMM_VERSION_MAJOR * 10000 + MINOR * 100 + PATCH. */
uint32_t cuvmm_version(void);

typedef enum cuvmm_engine_kind {
  CUVMM_ENGINE_OWN = 0,      /* this library's */
  CUVMM_ENGINE_PRELOADED = 1 /* that of the preload library in the same process */
} cuvmm_engine_kind;

typedef enum cuvmm_mode {
  CUVMM_MODE_VMM = 0,
  CUVMM_MODE_MONITOR = 1,
  CUVMM_MODE_OFF = 2
} cuvmm_mode;

typedef struct cuvmm_engine_info {
  int32_t kind;           /* a cuvmm_engine_kind */
  int32_t mode;           /* a cuvmm_mode: how the program's own allocations are treated */
  uint32_t version;       /* of the engine */
  int32_t driver_version; /* 13000 */
  int32_t device_count;
  int32_t reserved[11];
} cuvmm_engine_info;

/* Starts the engine and the driver if they are not running yet. NOT_SUPPORTED if there is no CUDA
 * device. */
cuvmm_status cuvmm_get_engine_info(cuvmm_engine_info* info, cuvmm_error* error);

/* A device's physical memory, as this process uses it. */
typedef struct cuvmm_device_info {
  uint64_t granule;         /* the driver's */
  uint64_t memory;          /* total memory of the device */
  uint64_t limit;           /* the most that this process may take (VMM_LIMIT); UINT64_MAX: any */
  uint64_t physical_in_use; /* chunks behind addresses, or kept aside by pools */
  uint64_t physical_cached; /* free chunks kept for later allocations */
  uint64_t reserved[11];
} cuvmm_device_info;

cuvmm_status cuvmm_get_device_info(int32_t device, cuvmm_device_info* info, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_ENGINE_H */
