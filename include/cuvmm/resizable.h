/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that grows and shrinks where it lies. A buffer has addresses for all that it may
 * ever need and memory behind as much as it has now: pointers into it stay valid, and nothing is
 * ever copied.
 *
 * Programs that only allocate, copy and free get much of this by `cuvmm run` (VMM_RESIZE).
 */
#ifndef CUVMM_RESIZABLE_H
#define CUVMM_RESIZABLE_H

#include <stdint.h>

#include "cuvmm/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Addresses on that device for `most` bytes; no memory yet. */
cuvmm_status cuvmm_reserve_resizable(int32_t device, uint64_t most, uint64_t* address,
                                     cuvmm_error* error);

/* The buffer that begins at `address` has `size` bytes from now on, or what it had where this
 * fails: OUT_OF_PHYSICAL_MEMORY, INVALID_ARGUMENT beyond `most`, NOT_FOUND. Growing waits for
 * nothing. Shrinking waits for the work of the current context, as cuMemFree does, and gives back
 * what lies in chunks that are not needed any more; the bytes that stay keep their contents. */
cuvmm_status cuvmm_resize(uint64_t address, uint64_t size, cuvmm_error* error);

/* The same in the order of a stream (a CUstream of the current context, not captured): work that it
 * is given from now on finds the new size. Never waits: memory goes once the stream has come so
 * far, when the library or the program next needs some. */
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

/* The end of the buffer and its addresses, in one way or the other. */
cuvmm_status cuvmm_release_resizable(uint64_t address, cuvmm_error* error);
cuvmm_status cuvmm_release_resizable_ordered(uint64_t address, void* stream, cuvmm_error* error);

/* What VMM_RESIZE has done with the program's own copies so far. */
typedef struct cuvmm_resize_info {
  uint64_t elided_copies;
  uint64_t elided_bytes; /* that were not copied */
  uint64_t run_copies;   /* that looked like a resize and were copied */
  uint64_t reserved[5];
} cuvmm_resize_info;

cuvmm_status cuvmm_get_resize_info(cuvmm_resize_info* info, cuvmm_error* error);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_RESIZABLE_H */
