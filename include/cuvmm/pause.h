/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaving the devices for a while, and memory that lies elsewhere: `cuvmm pause`, `cuvmm resume`
 * and VMM_SPILL for programs that want to say so themselves. Of the preload library alone: without
 * it the program's own allocations are not ours to move, and every call answers NOT_SUPPORTED.
 */
#ifndef CUVMM_PAUSE_H
#define CUVMM_PAUSE_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CUVMM_PAUSE_STRICT = 1, /* refuse where some memory cannot leave */
  CUVMM_RESUME_PARTLY = 1 /* go on with what fits the devices, and the rest on the host */
};

/* What a pause or a resume has done. Times are in microseconds, and the five parts of took_us what
 * it was busy with. */
typedef struct cuvmm_pause_report {
  uint64_t moved;     /* bytes */
  uint64_t stayed;    /* bytes that cannot leave, or have not come back to their device */
  uint64_t took_us;   /* all of it */
  uint64_t held_us;   /* with the program standing still */
  uint64_t drain_us;  /* until no call and no work was under way */
  uint64_t host_us;   /* until memory of the host was there and pinned */
  uint64_t copies_us; /* waiting for copies */
  uint64_t maps_us;   /* mapping and unmapping */
  uint64_t chunks_us; /* taking memory of the devices and giving it back */
  uint64_t reserved[7];
  char why[128]; /* something stayed */
} cuvmm_pause_report;

/* All calls that could touch memory or work wait from now on, in every thread, before they begin,
 * the caller's own included; what the process holds on its devices goes to the host, and its
 * addresses are kept. Calls and work under way are waited for, `timeout` microseconds at the most:
 * TIMED_OUT, and OUT_OF_PHYSICAL_MEMORY where the host has no room. Then, and after any other
 * failure, the program goes on as if nothing had been asked. Nothing is done where it is paused
 * already, and the report says what was. `report` may be NULL. */
cuvmm_status cuvmm_pause(uint64_t timeout, uint32_t flags, cuvmm_pause_report* report,
                         cuvmm_error* error);

/* Everything is put back at the same addresses, and calls go on. OUT_OF_PHYSICAL_MEMORY where the
 * devices have no room now: it stays paused, and can be asked again. Nothing is done where it is
 * not paused. */
cuvmm_status cuvmm_resume(uint32_t flags, cuvmm_pause_report* report, cuvmm_error* error);

typedef struct cuvmm_away_info {
  uint64_t is_paused;      /* 1 or 0 */
  uint64_t paused_bytes;   /* that a pause has moved and that are not back on their device */
  uint64_t ready_bytes;    /* of the host, pinned for a pause */
  uint64_t spilled_bytes;  /* behind addresses of all devices, and lying elsewhere (VMM_SPILL) */
  uint64_t spilled_cached; /* memory elsewhere that is kept for the next who needs some */
  uint64_t reserved[11];
} cuvmm_away_info;

/* At one moment; costs a lock for each device. */
cuvmm_status cuvmm_get_away_info(cuvmm_away_info* info, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_PAUSE_H */
