/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated driver's own interface: how a program supplies kernels, and how a test inspects the
 * driver's state. A program that only needs to run on both drivers needs CUVMM_SIM_KERNEL alone,
 * which costs nothing on a real card.
 *
 * On a real card a kernel is PTX text. Here it may also be a host function, which is faster and
 * does not depend on the PTX interpreter that runs all other kernels. For the PTX entry `fill`, the
 * program exports the function cuvmm_sim_kernel_fill (link with -rdynamic):
 *
 *   CUVMM_SIM_KERNEL(fill) {
 *     uint64_t address = *(const uint64_t*)launch->parameters[0];
 *     uint32_t* words = (uint32_t*)launch->memory(launch, address);
 *     ...
 *   }
 *
 * It runs once for the whole grid. An access to memory that the device may not access faults, and
 * the driver reports CUDA_ERROR_ILLEGAL_ADDRESS, sticky as on a card.
 */
#ifndef CUVMM_SIM_H
#define CUVMM_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuvmm_sim_launch cuvmm_sim_launch;
struct cuvmm_sim_launch {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  int device;              /* ordinal */
  const void** parameters; /* one pointer per kernel parameter */
  uint32_t parameter_count;
  /* Returns the host address of this device's memory at `device_address`. */
  void* (*memory)(const cuvmm_sim_launch* launch, uint64_t device_address);
};

typedef void (*cuvmm_sim_kernel)(const cuvmm_sim_launch* launch);

#define CUVMM_SIM_KERNEL(entry)                                                           \
  CUVMM_SIM_C __attribute__((visibility("default"), used)) void cuvmm_sim_kernel_##entry( \
      const cuvmm_sim_launch* launch)

#ifdef __cplusplus
#define CUVMM_SIM_C extern "C"
#else
#define CUVMM_SIM_C
#endif

/* Registers a host function for the entry if exporting one is not possible (a library opened with
 * RTLD_LOCAL, Python). Takes precedence over an exported function. NULL removes it. */
void cuvmm_sim_set_kernel(const char* entry, cuvmm_sim_kernel kernel);

/* The same as VMM_SIM_FAULT, from inside the program. "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY" fails
 * the seventh call of cuMemMap from now on; "cuMemMap:7=SIGKILL" lets it do its work and kills the
 * process as it returns. Separate several faults with commas; NULL or "" removes all. Returns 0, or
 * -1 if the text does not parse. */
int cuvmm_sim_set_faults(const char* faults);

/* Counters of one device, exact at the moment of the call. */
typedef struct cuvmm_sim_counters {
  uint64_t physical_bytes; /* device memory in use by this process, for any purpose */
  uint64_t physical_peak_bytes;
  uint64_t chunks;               /* cuMemCreate handles and mappings that keep memory alive */
  uint64_t mapped_bytes;         /* by cuMemMap */
  uint64_t reserved_bytes;       /* by cuMemAddressReserve */
  uint64_t blocking_allocations; /* live */
  uint64_t async_allocations;    /* live */
} cuvmm_sim_counters;
int cuvmm_sim_read_counters(int device, cuvmm_sim_counters* counters);

/* One device of a card shared by several processes (VMM_SIM_CARD). */
typedef struct cuvmm_sim_card {
  uint64_t held_bytes;    /* by this process */
  uint64_t held_by_all;   /* by all living processes */
  uint64_t processes;     /* living processes that share the card */
  uint64_t compute_turns; /* of this process */
  uint64_t compute_ns;    /* device time charged to it in them */
  uint64_t copy_turns;
  uint64_t copy_ns;
} cuvmm_sim_card;
/* Returns -1 if there is no such device, or this process shares no card. */
int cuvmm_sim_read_card(int device, cuvmm_sim_card* card);

/* The number of calls so far of one function (by API name, all its versions), or of all functions
 * if NULL. */
uint64_t cuvmm_sim_calls(const char* name);

/* A model of the microseconds that the calls so far would have taken on the measured card. */
double cuvmm_sim_modelled_microseconds(void);

/* What the program has not released: handles, mappings, reservations, allocations, contexts,
 * streams, events, modules, graphs. Writes one line for each into `text` (may be NULL) and returns
 * how many there are. Primary contexts count once per retain. */
uint64_t cuvmm_sim_leaks(char* text, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SIM_H */
