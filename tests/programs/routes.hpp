// SPDX-License-Identifier: Apache-2.0
// The three ways in which a program reaches driver functions.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

// name by cuGetProcAddress, symbol, arguments
#define PROGRAM_CALLS(CALL)                                                                     \
  CALL(cuInit, cuInit, (unsigned))                                                              \
  CALL(cuDeviceGet, cuDeviceGet, (CUdevice*, int))                                              \
  CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))              \
  CALL(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                     \
  CALL(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                           \
  CALL(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr*, size_t))                                       \
  CALL(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                                  \
  CALL(cuMemAllocManaged, cuMemAllocManaged, (CUdeviceptr*, size_t, unsigned))                  \
  CALL(cuMemAllocHost, cuMemAllocHost_v2, (void**, size_t))                                     \
  CALL(cuMemFreeHost, cuMemFreeHost, (void*))                                                   \
  CALL(cuMemAllocPitch, cuMemAllocPitch_v2, (CUdeviceptr*, size_t*, size_t, size_t, unsigned))  \
  CALL(cuMemAllocAsync, cuMemAllocAsync, (CUdeviceptr*, size_t, CUstream))                      \
  CALL(cuMemFreeAsync, cuMemFreeAsync, (CUdeviceptr, CUstream))                                 \
  CALL(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr, const void*, size_t))                       \
  CALL(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void*, CUdeviceptr, size_t))                             \
  CALL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))   \
  CALL(cuMemsetD32, cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                            \
  CALL(cuMemCreate, cuMemCreate,                                                                \
       (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long)) \
  CALL(cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle))                              \
  CALL(cuMemMap, cuMemMap,                                                                      \
       (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))         \
  CALL(cuMemUnmap, cuMemUnmap, (CUdeviceptr, size_t))                                           \
  CALL(cuMemSetAccess, cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc*, size_t))   \
  CALL(cuMemAddressFree, cuMemAddressFree, (CUdeviceptr, size_t))                               \
  CALL(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                                    \
  CALL(cuMemGetInfo, cuMemGetInfo_v2, (size_t*, size_t*))

struct Calls {
#define CALL(name, symbol, arguments) CUresult(*name##_) arguments;
  PROGRAM_CALLS(CALL)
#undef CALL
};

inline void* driver_library() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "no driver: %s\n", dlerror());
    std::exit(3);
  }
  return library;
}

template <class Function>
void require(Function* function, const char* name) {
  if (function != nullptr) return;
  std::fprintf(stderr, "%s is not there\n", name);
  std::exit(4);
}

inline Calls calls_by_dlsym() {
  Calls calls{};
  void* library = driver_library();
#define CALL(name, symbol, arguments)                                               \
  calls.name##_ = reinterpret_cast<CUresult(*) arguments>(dlsym(library, #symbol)); \
  require(calls.name##_, #symbol);
  PROGRAM_CALLS(CALL)
#undef CALL
  return calls;
}

// As a runtime does: cuGetProcAddress itself by dlsym, all others through it.
inline Calls calls_by_proc_address(int version, cuuint64_t flags) {
  using Get = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const Get get = reinterpret_cast<Get>(dlsym(driver_library(), "cuGetProcAddress_v2"));
  require(get, "cuGetProcAddress_v2");
  Calls calls{};
  void* found = nullptr;
#define CALL(name, symbol, arguments)                                               \
  found = nullptr;                                                                  \
  if (get(#name, &found, version, flags, nullptr) != CUDA_SUCCESS) found = nullptr; \
  calls.name##_ = reinterpret_cast<CUresult(*) arguments>(found);                   \
  require(calls.name##_, #name);
  PROGRAM_CALLS(CALL)
#undef CALL
  return calls;
}

#ifdef PROGRAM_IS_LINKED
inline Calls calls_by_link() {
  Calls calls{};
#define CALL(name, symbol, arguments) calls.name##_ = &symbol;
  PROGRAM_CALLS(CALL)
#undef CALL
  return calls;
}
#endif
