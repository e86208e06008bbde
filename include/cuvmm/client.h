/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of the scheduler: parts of one process whose GPU work a policy puts in order. They need
 * the preload library (`cuvmm run`). Without it every call here returns
 * CUVMM_ERROR_NOT_SUPPORTED and changes nothing. See docs/scheduling.md.
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
  CUVMM_SCHEDULE_FIFO = 1,        /* the client that submitted first */
  CUVMM_SCHEDULE_ROUND_ROBIN = 2, /* the client chosen least recently */
  CUVMM_SCHEDULE_PRIORITY = 3,    /* the highest priority, which rises with waiting */
  CUVMM_SCHEDULE_FAIR = 4         /* device time by weight */
} cuvmm_policy;

/* Turns scheduling on, changes the policy, or turns scheduling off. Turning it off returns once
 * everything submitted has been issued to the driver. */
cuvmm_status cuvmm_set_policy(int32_t policy, cuvmm_error* error);

/* A client's number, starting at 1; 0 is no client. Numbers are never reused. */
typedef uint32_t cuvmm_client;

/* `priority` is from -100 to 100, higher first; `weight` is from 1 to 10000. */
cuvmm_status cuvmm_client_create(const char* name, int32_t priority, int32_t weight,
                                 cuvmm_client* client, cuvmm_error* error);
/* Returns once everything the client has submitted has been issued to the driver. Threads bound to
 * it are left without a client. */
cuvmm_status cuvmm_client_destroy(cuvmm_client client, cuvmm_error* error);

/* Binds the calling thread: work that it submits from now on belongs to the client. */
cuvmm_status cuvmm_client_bind(cuvmm_client client, cuvmm_error* error);
/* Binds every thread that is not bound individually, including threads that start later. 0 ends
 * this binding. */
cuvmm_status cuvmm_client_bind_others(cuvmm_client client, cuvmm_error* error);
cuvmm_status cuvmm_client_unbind(cuvmm_error* error);

typedef struct cuvmm_client_figures {
  uint64_t operations; /* issued to the driver */
  uint64_t bytes;      /* copied and set by them */
  uint64_t queued_ns;  /* total time that they waited */
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
