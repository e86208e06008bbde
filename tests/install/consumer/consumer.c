/* SPDX-License-Identifier: Apache-2.0
 * A program of somebody else: compiles against the installed headers, links the library, and runs
 * on whichever libcuda.so.1 it finds. */
#include <cuvmm/cuvmm.h>
#include <cuvmm/sim.h>
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
  cuvmm_engine_info engine;
  cuvmm_error error;
  if (cuvmm_get_engine_info(&engine, &error) != CUVMM_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  if (engine.version != cuvmm_version() || engine.device_count < 1) {
    fprintf(stderr, "engine %u, library %u\n", engine.version, cuvmm_version());
    return 1;
  }
  printf("cuvmm %s, cuInit %d\n", CUVMM_VERSION_STRING, answer);
  return answer;
}
