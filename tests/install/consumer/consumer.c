/* SPDX-License-Identifier: Apache-2.0
 * A program of somebody else: compiles against the installed headers, and runs on whichever
 * libcuda.so.1 it finds. */
#include <cuvmm/sim.h>
#include <cuvmm/version.h>
#include <dlfcn.h>
#include <stdio.h>

CUVMM_SIM_KERNEL(nothing) {
  (void)launch;
}

int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  void* counters = dlsym(driver, "cuvmm_sim_read_counters");
  if (!init || !counters) {
    fprintf(stderr, "not the simulated driver\n");
    return 1;
  }
  int answer = init(0);
  printf("cuvmm %s, cuInit %d\n", CUVMM_VERSION_STRING, answer);
  return answer;
}
