// SPDX-License-Identifier: Apache-2.0
// holds MIB: allocates that much memory of device 0, says so, and holds it until its input ends.
// Exits with the driver's answer unless that is CUDA_SUCCESS.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define FIND(name, symbol) name = (decltype_##name*)dlsym(driver, symbol)

typedef CUresult decltype_init(unsigned);
typedef CUresult decltype_retain(CUcontext*, CUdevice);
typedef CUresult decltype_use(CUcontext);
typedef CUresult decltype_info(size_t*, size_t*);
typedef CUresult decltype_allocate(CUdeviceptr*, size_t);
typedef CUresult decltype_release(CUdeviceptr);

static void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  printf("%s: error %d\n", what, (int)answer);
  exit(answer < 126 ? (int)answer : 126);
}

int main(int count, char** words) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL || count != 2) return 125;
  decltype_init* FIND(init, "cuInit");
  decltype_retain* FIND(retain, "cuDevicePrimaryCtxRetain");
  decltype_use* FIND(use, "cuCtxSetCurrent");
  decltype_info* FIND(info, "cuMemGetInfo_v2");
  decltype_allocate* FIND(allocate, "cuMemAlloc_v2");
  decltype_release* FIND(release, "cuMemFree_v2");
  CUcontext context = NULL;
  size_t free_bytes = 0;
  size_t total = 0;
  check(init(0), "cuInit");
  check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(use(context), "cuCtxSetCurrent");
  check(info(&free_bytes, &total), "cuMemGetInfo");
  printf("process %d sees %zu MiB\n", (int)getpid(), total / MIB);
  fflush(stdout);
  CUdeviceptr memory = 0;
  check(allocate(&memory, strtoull(words[1], NULL, 10) * MIB), "cuMemAlloc");
  printf("holds %s MiB\n", words[1]);
  fflush(stdout);
  while (getchar() != EOF) {
  }
  check(release(memory), "cuMemFree");
  return 0;
}
