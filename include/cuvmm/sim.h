/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated driver's own interface: how a program gives it kernels, and how a test looks
 * behind it. A program that only wants to run on both drivers needs CUVMM_SIM_KERNEL alone, which
 * costs nothing on a real card.
 *
 * A kernel is PTX text on a real card. Here it may be a host function, which is quicker and needs
 * nothing of the interpreter that runs the PTX of all others. For the PTX entry `fill`, the program
 * exports (link with -rdynamic) the function cuvmm_sim_kernel_fill:
 *
 *   CUVMM_SIM_KERNEL(fill) {
 *     uint64_t address = *(const uint64_t*)launch->parameters[0];
 *     uint32_t* words = (uint32_t*)launch->memory(launch, address);
 *     ...
 *   }
 *
 * It runs once for the whole grid. Memory that the device may not access faults there, which the
 * driver turns into CUDA_ERROR_ILLEGAL_ADDRESS, sticky as on a card.
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
  const void** parameters; /* one pointer a kernel parameter */
  uint32_t parameter_count;
  /* Where this device's memory at a device address lies in the host's memory. */
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

/* Gives the entry a host function where exporting one is not possible (a library opened with
 * RTLD_LOCAL, Python). Found before exported ones. NULL takes it back. */
void cuvmm_sim_set_kernel(const char* entry, cuvmm_sim_kernel kernel);

/* What VMM_SIM_FAULT sets, from inside: "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY" fails the seventh
 * call of cuMemMap counted from now; several with commas; NULL or "" ends it. Returns 0, or -1
 * where the text does not parse. */
int cuvmm_sim_set_faults(const char* faults);

/* Counters of one device, exact at the moment of the call. */
typedef struct cuvmm_sim_counters {
  uint64_t physical_bytes; /* device memory in use by this process, whatever for */
  uint64_t physical_peak_bytes;
  uint64_t chunks;               /* cuMemCreate handles and mappings that keep memory alive */
  uint64_t mapped_bytes;         /* by cuMemMap */
  uint64_t reserved_bytes;       /* by cuMemAddressReserve */
  uint64_t blocking_allocations; /* live */
  uint64_t async_allocations;    /* live */
} cuvmm_sim_counters;
int cuvmm_sim_read_counters(int device, cuvmm_sim_counters* counters);

/* One device of a card that processes share (VMM_SIM_CARD). */
typedef struct cuvmm_sim_card {
  uint64_t held_bytes;    /* by this process */
  uint64_t held_by_all;   /* by all processes that live */
  uint64_t processes;     /* that live and share the card */
  uint64_t compute_turns; /* that this process had */
  uint64_t compute_ns;    /* device time that it was charged in them */
  uint64_t copy_turns;
  uint64_t copy_ns;
} cuvmm_sim_card;
/* Returns -1 where there is no such device, or this process shares no card. */
int cuvmm_sim_read_card(int device, cuvmm_sim_card* card);

/* Calls so far of one function (by API name, all its versions), or of all with NULL. */
uint64_t cuvmm_sim_calls(const char* name);

/* Microseconds that the calls so far would have taken on the measured card: a model. */
double cuvmm_sim_modelled_microseconds(void);

/* What the program has not given back: handles, mappings, reservations, allocations, contexts,
 * streams, events, modules, graphs. Writes a line each into `text` (may be NULL), returns how
 * many. Primary contexts count by their retains. */
uint64_t cuvmm_sim_leaks(char* text, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif /* CUVMM_SIM_H */
