/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory passed between processes of one user on one machine, by file descriptors over a socket.
 *
 * The exporter makes a buffer and listens; each importer that connects is sent grants, maps them
 * where and as often as it likes, says what it has to say of them, and releases them. What was
 * granted stays, and counts at the exporter, until the last importer has released it or exited.
 *
 * A buffer is made of chunks, and a grant names whole ones: the driver maps no part of a chunk. A
 * read-only grant is mapped for reading at the importer. That is cooperation: the descriptor itself
 * carries no rights.
 *
 * All waits end: times are in microseconds. A host and a session serve one thread at a time; a
 * second one waits. docs/sharing.md tells the whole story.
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
  uint64_t chunk_size; /* in granules: the steps of grants; 0: one chunk for all of it */
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

/* NOT_SUPPORTED where the device maps no memory, or gives none away by file descriptor. */
cuvmm_status cuvmm_shared_buffer_create(const cuvmm_shared_buffer_options* options,
                                        cuvmm_shared_buffer** buffer, cuvmm_error* error);
/* At addresses of this process, for its device. Once. */
cuvmm_status cuvmm_shared_buffer_map(cuvmm_shared_buffer* buffer, uint64_t* address,
                                     cuvmm_error* error);
cuvmm_status cuvmm_get_shared_buffer_info(const cuvmm_shared_buffer* buffer,
                                          cuvmm_shared_buffer_info* info, cuvmm_error* error);
/* A file descriptor of one chunk, for a channel of the program's own; the caller closes it. */
cuvmm_status cuvmm_shared_buffer_export(const cuvmm_shared_buffer* buffer, uint64_t chunk,
                                        int32_t* descriptor, cuvmm_error* error);
/* No work uses its addresses any more. What importers hold of it stays theirs. */
cuvmm_status cuvmm_shared_buffer_destroy(cuvmm_shared_buffer* buffer, cuvmm_error* error);

/* The exporter's socket. */
typedef struct cuvmm_share_host cuvmm_share_host;

/* At `path`, or where it is NULL at a place that importers of the same user look at. A file beside
 * it, for that user alone, holds what importers have to know. ALREADY_EXISTS where a living process
 * listens there. */
cuvmm_status cuvmm_share_listen(const char* path, cuvmm_share_host** host, cuvmm_error* error);

typedef enum cuvmm_share_event_kind {
  CUVMM_SHARE_CAME = 1,         /* an importer */
  CUVMM_SHARE_FETCHED = 2,      /* it has all descriptors of the grant */
  CUVMM_SHARE_ACKNOWLEDGED = 3, /* status: what it says of the grant */
  CUVMM_SHARE_RELEASED = 4,     /* it has the grant no more */
  CUVMM_SHARE_LEFT = 5          /* it has gone, or ended */
} cuvmm_share_event_kind;

typedef struct cuvmm_share_event {
  int32_t kind; /* a cuvmm_share_event_kind */
  uint32_t status;
  uint64_t peer;  /* never used again for another */
  uint64_t grant; /* never used again for another */
  uint64_t reserved[5];
} cuvmm_share_event;

/* The next event. Nothing goes on with importers but in here. TIMED_OUT where there was none. */
cuvmm_status cuvmm_share_wait(cuvmm_share_host* host, uint64_t timeout, cuvmm_share_event* event,
                              cuvmm_error* error);

typedef enum cuvmm_share_access {
  CUVMM_SHARE_READ_WRITE = 0,
  CUVMM_SHARE_READ_ONLY = 1
} cuvmm_share_access;

typedef struct cuvmm_share_grant {
  uint64_t first_chunk;
  uint64_t chunk_count; /* 0: all from the first one on */
  uint64_t tag;         /* for the two programs to tell grants apart */
  int32_t access;       /* a cuvmm_share_access */
  int32_t reserved0;
  uint64_t reserved[4];
} cuvmm_share_grant;

/* Never waits for the importer. NOT_FOUND where it has gone. */
cuvmm_status cuvmm_share_send(cuvmm_share_host* host, uint64_t peer,
                              const cuvmm_shared_buffer* buffer, const cuvmm_share_grant* grant,
                              uint64_t* id, cuvmm_error* error);
/* The same of a part of a shareable pool: whole granules from `offset` on, allocated to the last
 * byte. The grant's first_chunk and chunk_count are 0. What the importer has stays as it is when
 * the pool is compacted, and lives on when it is deallocated; what is allocated there while the
 * granule lives the importer sees too. */
cuvmm_status cuvmm_share_send_of_pool(cuvmm_share_host* host, uint64_t peer,
                                      const cuvmm_elastic_pool* pool, uint64_t offset,
                                      uint64_t size, const cuvmm_share_grant* grant, uint64_t* id,
                                      cuvmm_error* error);
/* Importers lose the connection and keep the memory. */
cuvmm_status cuvmm_share_stop(cuvmm_share_host* host, cuvmm_error* error);

/* The importer's connection. */
typedef struct cuvmm_share_session cuvmm_share_session;
/* Memory that was granted to this process. */
typedef struct cuvmm_shared_import cuvmm_shared_import;
/* It, at addresses of this process. */
typedef struct cuvmm_shared_mapping cuvmm_shared_mapping;

/* NOT_FOUND where no process listens. `path` as in cuvmm_share_listen. */
cuvmm_status cuvmm_share_connect(const char* path, uint64_t timeout, cuvmm_share_session** session,
                                 cuvmm_error* error);
/* The next grant, all its chunks imported. */
cuvmm_status cuvmm_share_receive(cuvmm_share_session* session, uint64_t timeout,
                                 cuvmm_shared_import** import, cuvmm_error* error);

typedef struct cuvmm_shared_import_info {
  uint64_t grant;
  uint64_t size;
  uint64_t chunk_count;
  uint64_t tag;
  int32_t access;     /* a cuvmm_share_access */
  int32_t device;     /* that the memory is of, as this process counts devices */
  int32_t descriptor; /* that its first chunk came by; closed once it was imported */
  int32_t reserved0;
  uint64_t reserved[4];
} cuvmm_shared_import_info;

cuvmm_status cuvmm_get_shared_import_info(const cuvmm_shared_import* import,
                                          cuvmm_shared_import_info* info, cuvmm_error* error);
/* As often as wanted, for any device that can reach it. `hint`: addresses that would be liked, or
 * 0. */
cuvmm_status cuvmm_shared_import_map(const cuvmm_shared_import* import, int32_t device,
                                     uint64_t hint, cuvmm_shared_mapping** mapping,
                                     uint64_t* address, cuvmm_error* error);
/* No work uses its addresses any more. */
cuvmm_status cuvmm_shared_mapping_unmap(cuvmm_shared_mapping* mapping, cuvmm_error* error);
/* Tells the exporter's program; 0 says that all is well. */
cuvmm_status cuvmm_share_acknowledge(cuvmm_share_session* session,
                                     const cuvmm_shared_import* import, uint32_t status,
                                     uint64_t timeout, cuvmm_error* error);
/* Ends the import and tells the exporter, who answers. Its mappings are unmapped before. The import
 * has ended whatever the answer is. */
cuvmm_status cuvmm_share_release(cuvmm_share_session* session, cuvmm_shared_import* import,
                                 uint64_t timeout, cuvmm_error* error);
cuvmm_status cuvmm_share_disconnect(cuvmm_share_session* session, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SHARE_H */
