/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of the C API's calls: a status and, on request, the details of an error.
 */
#ifndef CUVMM_ERROR_H
#define CUVMM_ERROR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are never reassigned. */
typedef enum cuvmm_status {
  CUVMM_OK = 0,
  CUVMM_ERROR_INVALID_ARGUMENT = 1, /* a number out of range, a missing pointer */
  CUVMM_ERROR_INVALID_GRANULE = 2,  /* not a power of two, too small, or unfit for the driver */
  CUVMM_ERROR_INVALID_OFFSET = 3,   /* offset, size, capacity */
  CUVMM_ERROR_ALREADY_MAPPED = 4,   /* offset, size */
  CUVMM_ERROR_NOT_MAPPED = 5,       /* offset, size */
  CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY = 6, /* requested, available */
  CUVMM_ERROR_OUT_OF_ADDRESSES = 7,       /* requested */
  CUVMM_ERROR_MODEL_ALREADY_EXISTS = 8,   /* model */
  CUVMM_ERROR_MODEL_NOT_FOUND = 9,        /* model */
  CUVMM_ERROR_NOT_SUPPORTED = 10,         /* no CUDA device, no peer path, driver too old */
  CUVMM_ERROR_DEVICE_LOST = 11,           /* a sticky error: the context is dead */
  CUVMM_ERROR_DRIVER_FAILED = 12,         /* driver_code */
  CUVMM_ERROR_SYSTEM_FAILED = 13,         /* system_code */
  CUVMM_ERROR_TIMED_OUT = 14,
  CUVMM_ERROR_NOT_FOUND = 15,
  CUVMM_ERROR_ALREADY_EXISTS = 16
} cuvmm_status;

/* Why a call failed. Members that do not apply to the error are 0 or "". Written only if a call
 * fails. The struct never grows: later versions use the reserved members. */
typedef struct cuvmm_error {
  int32_t status;      /* a cuvmm_status */
  int32_t driver_code; /* a CUresult, if the driver failed */
  int32_t system_code; /* an errno, if the system failed */
  int32_t reserved0;
  uint64_t offset;
  uint64_t size;
  uint64_t capacity;
  uint64_t requested; /* bytes of physical memory, or of addresses */
  uint64_t available;
  uint64_t reserved[8];
  char model[128];   /* the model's name, truncated if longer */
  char message[256]; /* one line for a person to read */
} cuvmm_error;

/* For example "already mapped"; "unknown status" for any other number. Never NULL. */
const char* cuvmm_status_name(cuvmm_status status);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_ERROR_H */
