/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that grows and shrinks in place. A buffer reserves addresses for its maximum size
 * and has memory for its current size: pointers into it stay valid, and nothing is ever copied.
 *
 * Programs that only allocate, copy and free get much of this from `cuvmm run` (VMM_RESIZE).
 */
#ifndef CUVMM_RESIZABLE_H
#define CUVMM_RESIZABLE_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reserves addresses for up to `most` bytes on the device; no memory yet. */
cuvmm_status cuvmm_reserve_resizable(int32_t device, uint64_t most, uint64_t* address,
                                     cuvmm_error* error);

/* Gives the buffer that begins at `address` a size of `size` bytes. Fails with
 * OUT_OF_PHYSICAL_MEMORY, INVALID_ARGUMENT (beyond `most`) or NOT_FOUND, and then leaves it as it
 * was. Growing waits for nothing. Shrinking waits for the work of the current context, as cuMemFree
 * does (of the device's primary context if none is current), and releases chunks that are no longer
 * needed; the remaining bytes keep their contents. */
cuvmm_status cuvmm_resize(uint64_t address, uint64_t size, cuvmm_error* error);

/* The same in the order of a stream (a CUstream of the current context that is not capturing): work
 * submitted to it from now on finds the new size. Never waits: memory is released after the stream
 * has reached this point, the next time that the library or the program needs some. */
cuvmm_status cuvmm_resize_ordered(uint64_t address, uint64_t size, void* stream,
                                  cuvmm_error* error);

typedef struct cuvmm_resizable_info {
  uint64_t size;           /* as it was last resized */
  uint64_t most;           /* as reserved */
  uint64_t physical_bytes; /* behind its addresses now */
  uint64_t reserved[5];
} cuvmm_resizable_info;

cuvmm_status cuvmm_get_resizable_info(uint64_t address, cuvmm_resizable_info* info,
                                      cuvmm_error* error);

/* Releases the buffer and its addresses: after a wait, or in the order of a stream. */
cuvmm_status cuvmm_release_resizable(uint64_t address, cuvmm_error* error);
cuvmm_status cuvmm_release_resizable_ordered(uint64_t address, void* stream, cuvmm_error* error);

/* What VMM_RESIZE has done with the program's own copies so far. */
typedef struct cuvmm_resize_info {
  uint64_t elided_copies;
  uint64_t elided_bytes; /* bytes that were not copied */
  uint64_t run_copies;   /* copies that looked like a resize but were made */
  uint64_t reserved[5];
} cuvmm_resize_info;

cuvmm_status cuvmm_get_resize_info(cuvmm_resize_info* info, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_RESIZABLE_H */
