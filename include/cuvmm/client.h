/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of the scheduler: parts of one process whose GPU work is put in order by a policy. Needs
 * the preload library in front of the program (`cuvmm run`); else every call here answers
 * CUVMM_ERROR_NOT_SUPPORTED, and the program runs as it would without. docs/scheduling.md.
 */
#ifndef CUVMM_CLIENT_H
#define CUVMM_CLIENT_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cuvmm_policy {
  CUVMM_SCHEDULE_OFF = 0,         /* every thread calls the driver itself */
  CUVMM_SCHEDULE_FIFO = 1,        /* who submitted first */
  CUVMM_SCHEDULE_ROUND_ROBIN = 2, /* who was chosen the longest ago */
  CUVMM_SCHEDULE_PRIORITY = 3,    /* the highest priority, which grows with waiting */
  CUVMM_SCHEDULE_FAIR = 4         /* device time by weight */
} cuvmm_policy;

/* Turns scheduling on, changes the policy, or turns it off: then everything that was submitted has
 * been given to the driver when it returns. */
cuvmm_status cuvmm_set_policy(int32_t policy, cuvmm_error* error);

/* A client by its number, from 1 on; 0 is none. Numbers are never used again. */
typedef uint32_t cuvmm_client;

/* `priority` from -100 to 100, higher goes first; `weight` from 1 to 10000. */
cuvmm_status cuvmm_client_create(const char* name, int32_t priority, int32_t weight,
                                 cuvmm_client* client, cuvmm_error* error);
/* What it has submitted has been given to the driver when it returns. Its threads have no client.
 */
cuvmm_status cuvmm_client_destroy(cuvmm_client client, cuvmm_error* error);

/* From here on the calling thread's work is the client's. */
cuvmm_status cuvmm_client_bind(cuvmm_client client, cuvmm_error* error);
/* The same for every thread that is not bound itself, those that are still to come among them; 0
 * ends it. */
cuvmm_status cuvmm_client_bind_others(cuvmm_client client, cuvmm_error* error);
cuvmm_status cuvmm_client_unbind(cuvmm_error* error);

typedef struct cuvmm_client_figures {
  uint64_t operations; /* given to the driver */
  uint64_t bytes;      /* copied and set by them */
  uint64_t queued_ns;  /* that they waited, all together */
  uint64_t longest_queued_ns;
  uint64_t device_ns; /* measured on the device */
  uint64_t waits_for_room;
  uint64_t reserved[10];
} cuvmm_client_figures;

cuvmm_status cuvmm_client_get_figures(cuvmm_client client, cuvmm_client_figures* figures,
                                      cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_CLIENT_H */
