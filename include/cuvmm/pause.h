/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaving the devices for a while, and memory that lies elsewhere: `cuvmm pause`, `cuvmm resume`
 * and VMM_SPILL as calls. They need the preload library: without it the driver owns the program's
 * allocations, and every call returns NOT_SUPPORTED.
 */
#ifndef CUVMM_PAUSE_H
#define CUVMM_PAUSE_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CUVMM_PAUSE_STRICT = 1, /* fail if some memory cannot leave */
  CUVMM_RESUME_PARTLY = 1 /* continue with what fits on the devices, and the rest on the host */
};

/* The report on a pause or a resume. Times are in microseconds; drain_us to chunks_us are the five
 * parts of took_us. */
typedef struct cuvmm_pause_report {
  uint64_t moved;     /* bytes */
  uint64_t stayed;    /* bytes that could not leave, or have not come back to their device */
  uint64_t took_us;   /* total */
  uint64_t held_us;   /* with the program stopped */
  uint64_t drain_us;  /* draining calls and work in flight */
  uint64_t host_us;   /* getting host memory and pinning it */
  uint64_t copies_us; /* waiting for copies */
  uint64_t maps_us;   /* mapping and unmapping */
  uint64_t chunks_us; /* taking device memory and returning it */
  uint64_t reserved[7];
  char why[128]; /* why something stayed */
} cuvmm_pause_report;

/* Blocks every call that could touch memory or submit work, before it begins, in every thread
 * including the caller's. Then moves what the process holds on its devices to the host; its
 * addresses stay reserved. Memory of this library's objects (pools, resizable and shared buffers)
 * and of the driver's own stays, uncounted, and their calls go on (docs/pausing.md). First drains
 * calls and work in flight, for `timeout` microseconds at most. Fails with TIMED_OUT if they do not
 * end in that time, and with OUT_OF_PHYSICAL_MEMORY if the host has no room. After a failure the
 * program continues: memory that has already left comes back, or stays on the host if the device no
 * longer has room. If the host has no room for that either, the program stays paused until it can
 * be resumed. If the process is already paused, does nothing and reports what that pause did.
 * `report` may be NULL. */
cuvmm_status cuvmm_pause(uint64_t timeout, uint32_t flags, cuvmm_pause_report* report,
                         cuvmm_error* error);

/* Puts everything back at the same addresses and lets calls continue. If the devices have no room,
 * fails with OUT_OF_PHYSICAL_MEMORY: the process stays paused, and the call can be repeated. Does
 * nothing if the process is not paused. Fails with INVALID_ARGUMENT after `cuvmm pause --deep`,
 * from which only the command `cuvmm resume` comes back. */
cuvmm_status cuvmm_resume(uint32_t flags, cuvmm_pause_report* report, cuvmm_error* error);

typedef struct cuvmm_away_info {
  uint64_t is_paused;      /* 1 or 0 */
  uint64_t paused_bytes;   /* moved by a pause and not yet back on their device */
  uint64_t ready_bytes;    /* host memory pinned for a pause */
  uint64_t spilled_bytes;  /* behind addresses of any device but resident elsewhere (VMM_SPILL) */
  uint64_t spilled_cached; /* free memory elsewhere that is kept for later use */
  uint64_t reserved[11];
} cuvmm_away_info;

/* A snapshot. Takes one lock per device. */
cuvmm_status cuvmm_get_away_info(cuvmm_away_info* info, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_PAUSE_H */
