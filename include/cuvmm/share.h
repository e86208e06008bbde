/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory passed between processes of one user on one machine, by file descriptors over a socket.
 *
 * The exporter creates a buffer, listens, and sends grants to each importer that connects. An
 * importer maps a grant wherever and as often as it likes, acknowledges it, and releases it.
 * Granted memory stays, and counts against the exporter's limit, until the last importer has
 * released it or exited.
 *
 * A buffer consists of chunks, and a grant names whole ones: the driver cannot map part of a chunk.
 * An importer maps a read-only grant for reading only. This relies on cooperation: the descriptor
 * itself carries no rights.
 *
 * Every wait has a timeout, in microseconds. A host and a session each serve one thread at a time:
 * a call first waits until those of other threads have returned. In a forked child the calls that
 * destroy these objects do nothing. See docs/sharing.md.
 */
#ifndef CUVMM_SHARE_H
#define CUVMM_SHARE_H

#include <stdint.h>

#include "cuvmm/elastic_pool.h"
#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exporter's memory. */
typedef struct cuvmm_shared_buffer cuvmm_shared_buffer;

typedef struct cuvmm_shared_buffer_options {
  int32_t device;
  int32_t reserved0;
  uint64_t size;       /* rounded up to chunks */
  uint64_t chunk_size; /* the unit of grants, a multiple of the granule; 0: one chunk in all */
  uint64_t reserved[5];
} cuvmm_shared_buffer_options;

typedef struct cuvmm_shared_buffer_info {
  uint64_t address; /* 0 until it is mapped */
  uint64_t size;
  uint64_t granule; /* the driver's */
  uint64_t chunk_size;
  uint64_t chunk_count;
  uint64_t reserved[3];
} cuvmm_shared_buffer_info;

/* NOT_SUPPORTED if the device cannot map memory or export it as a file descriptor. */
cuvmm_status cuvmm_shared_buffer_create(const cuvmm_shared_buffer_options* options,
                                        cuvmm_shared_buffer** buffer, cuvmm_error* error);
/* Maps the buffer at addresses of this process, for the buffer's device. Can be called once. */
cuvmm_status cuvmm_shared_buffer_map(cuvmm_shared_buffer* buffer, uint64_t* address,
                                     cuvmm_error* error);
cuvmm_status cuvmm_get_shared_buffer_info(const cuvmm_shared_buffer* buffer,
                                          cuvmm_shared_buffer_info* info, cuvmm_error* error);
/* Exports one chunk as a file descriptor, to pass over a channel of the program's own. The caller
 * closes it. */
cuvmm_status cuvmm_shared_buffer_export(const cuvmm_shared_buffer* buffer, uint64_t chunk,
                                        int32_t* descriptor, cuvmm_error* error);
/* No work may still use the buffer's addresses. Importers keep the memory that they hold. */
cuvmm_status cuvmm_shared_buffer_destroy(cuvmm_shared_buffer* buffer, cuvmm_error* error);

/* The exporter's socket. */
typedef struct cuvmm_share_host cuvmm_share_host;

/* Listens at `path`; if NULL, at a default path where importers of the same user look. A file
 * beside it, readable by that user only, holds the token that importers must present.
 * ALREADY_EXISTS if a living process listens there. */
cuvmm_status cuvmm_share_listen(const char* path, cuvmm_share_host** host, cuvmm_error* error);

typedef enum cuvmm_share_event_kind {
  CUVMM_SHARE_CAME = 1,         /* an importer connected */
  CUVMM_SHARE_FETCHED = 2,      /* it has all descriptors of the grant */
  CUVMM_SHARE_ACKNOWLEDGED = 3, /* it acknowledged the grant with `status` */
  CUVMM_SHARE_RELEASED = 4,     /* it released the grant */
  CUVMM_SHARE_LEFT = 5          /* it disconnected or exited */
} cuvmm_share_event_kind;

typedef struct cuvmm_share_event {
  int32_t kind; /* a cuvmm_share_event_kind */
  uint32_t status;
  uint64_t peer;  /* an importer's number, never reused */
  uint64_t grant; /* a grant's number, never reused */
  uint64_t reserved[5];
} cuvmm_share_event;

/* Waits for the next event. Importers are served only inside this call. TIMED_OUT if there was no
 * event. */
cuvmm_status cuvmm_share_wait(cuvmm_share_host* host, uint64_t timeout, cuvmm_share_event* event,
                              cuvmm_error* error);

typedef enum cuvmm_share_access {
  CUVMM_SHARE_READ_WRITE = 0,
  CUVMM_SHARE_READ_ONLY = 1
} cuvmm_share_access;

typedef struct cuvmm_share_grant {
  uint64_t first_chunk;
  uint64_t chunk_count; /* 0: all from first_chunk on */
  uint64_t tag;         /* for the programs' own use, to tell grants apart */
  int32_t access;       /* a cuvmm_share_access */
  int32_t reserved0;
  uint64_t reserved[4];
} cuvmm_share_grant;

/* Grants chunks of `buffer` to an importer. Never waits for it. NOT_FOUND if it is gone; TIMED_OUT
 * if it has so many grants to receive that its socket has no room: try again later. */
cuvmm_status cuvmm_share_send(cuvmm_share_host* host, uint64_t peer,
                              const cuvmm_shared_buffer* buffer, const cuvmm_share_grant* grant,
                              uint64_t* id, cuvmm_error* error);
/* The same for a part of a shareable pool: whole granules starting at `offset`, allocated to the
 * last byte. The grant's first_chunk and chunk_count must be 0. Compaction of the pool leaves the
 * importer's memory as it is, and the memory outlives its deallocation. Until the granule is
 * released, the importer also sees whatever else is allocated in it. */
cuvmm_status cuvmm_share_send_of_pool(cuvmm_share_host* host, uint64_t peer,
                                      const cuvmm_elastic_pool* pool, uint64_t offset,
                                      uint64_t size, const cuvmm_share_grant* grant, uint64_t* id,
                                      cuvmm_error* error);
/* Disconnects all importers. They keep the memory. Ends a wait on another thread, and waits until
 * that has returned. */
cuvmm_status cuvmm_share_stop(cuvmm_share_host* host, cuvmm_error* error);

/* The importer's connection. */
typedef struct cuvmm_share_session cuvmm_share_session;
/* Memory granted to this process. */
typedef struct cuvmm_shared_import cuvmm_shared_import;
/* Such memory mapped at addresses of this process. */
typedef struct cuvmm_shared_mapping cuvmm_shared_mapping;

/* NOT_FOUND if no process listens. `path` is as in cuvmm_share_listen. */
cuvmm_status cuvmm_share_connect(const char* path, uint64_t timeout, cuvmm_share_session** session,
                                 cuvmm_error* error);
/* Waits for the next grant and imports all of its chunks. If they cannot be fetched in time, the
 * next call receives the same grant; if they cannot be imported, the grant is released. */
cuvmm_status cuvmm_share_receive(cuvmm_share_session* session, uint64_t timeout,
                                 cuvmm_shared_import** import, cuvmm_error* error);

typedef struct cuvmm_shared_import_info {
  uint64_t grant;
  uint64_t size;
  uint64_t chunk_count;
  uint64_t tag;
  int32_t access;     /* a cuvmm_share_access */
  int32_t device;     /* the memory's device, by this process's ordinals */
  int32_t descriptor; /* the number of the first chunk's descriptor, closed since its import */
  int32_t reserved0;
  uint64_t reserved[4];
} cuvmm_shared_import_info;

cuvmm_status cuvmm_get_shared_import_info(const cuvmm_shared_import* import,
                                          cuvmm_shared_import_info* info, cuvmm_error* error);
/* Maps the import for `device`, which must be able to reach the memory. Can be called any number of
 * times. `hint` is the preferred address, or 0. */
cuvmm_status cuvmm_shared_import_map(const cuvmm_shared_import* import, int32_t device,
                                     uint64_t hint, cuvmm_shared_mapping** mapping,
                                     uint64_t* address, cuvmm_error* error);
/* No work may still use the mapping's addresses. */
cuvmm_status cuvmm_shared_mapping_unmap(cuvmm_shared_mapping* mapping, cuvmm_error* error);
/* Reports `status` to the exporting program; 0 means success. */
cuvmm_status cuvmm_share_acknowledge(cuvmm_share_session* session,
                                     const cuvmm_shared_import* import, uint32_t status,
                                     uint64_t timeout, cuvmm_error* error);
/* Ends the import, notifies the exporter and waits for its answer. Unmap the import's mappings
 * first. The import has ended even if this fails. */
cuvmm_status cuvmm_share_release(cuvmm_share_session* session, cuvmm_shared_import* import,
                                 uint64_t timeout, cuvmm_error* error);
/* Ends a wait on another thread, and waits until that has returned. */
cuvmm_status cuvmm_share_disconnect(cuvmm_share_session* session, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SHARE_H */
