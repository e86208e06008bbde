// SPDX-License-Identifier: Apache-2.0
// Allocates MIB of memory, then executes the program that the rest of its command names. Without
// one it ends with status 0.
//
//   exec MIB [PROGRAM ARGUMENT…]
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int count, char** words) {
  if (count < 2) return 2;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto found = [&](const char* name) {
    return library != nullptr ? dlsym(library, name) : nullptr;
  };
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(found("cuInit"));
  const auto retain =
      reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(found("cuDevicePrimaryCtxRetain"));
  const auto enter = reinterpret_cast<CUresult (*)(CUcontext)>(found("cuCtxSetCurrent"));
  const auto take =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(found("cuMemAlloc_v2"));
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  const auto size = static_cast<std::size_t>(std::atoi(words[1])) << 20;
  if (init == nullptr || init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
      enter(context) != CUDA_SUCCESS || take(&address, size) != CUDA_SUCCESS) {
    std::fprintf(stderr, "exec: no memory\n");
    return 2;
  }
  std::printf("exec: holds %s MiB\n", words[1]);
  std::fflush(stdout);
  if (count == 2) return 0;
  ::usleep(500'000);
  ::execv(words[2], words + 2);
  return 127;
}
