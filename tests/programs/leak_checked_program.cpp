// SPDX-License-Identifier: Apache-2.0
// Built with AddressSanitizer, which looks for leaks at the end of each process: forks after it has
// used memory, and ends with its child's exit status.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {

template <class Function>
Function* look_up(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return driver != nullptr ? reinterpret_cast<Function*>(dlsym(driver, name)) : nullptr;
}

bool use_memory() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  return look_up<decltype(cuInit)>("cuInit")(0) == CUDA_SUCCESS &&
         look_up<decltype(cuDeviceGet)>("cuDeviceGet")(&device, 0) == CUDA_SUCCESS &&
         look_up<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
             &context, device) == CUDA_SUCCESS &&
         look_up<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context) == CUDA_SUCCESS &&
         look_up<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&memory, 1 << 20) ==
             CUDA_SUCCESS &&
         look_up<CUresult(CUdeviceptr)>("cuMemFree_v2")(memory) == CUDA_SUCCESS;
}

// `status` after that many more forks. Every process but the first tries the driver, which refuses.
int in_children(int forks, int status) {
  if (forks == 0) return status;
  const pid_t child = fork();
  if (child == 0) {
    (void)use_memory();
    std::exit(in_children(forks - 1, status));
  }
  int end = 0;
  if (waitpid(child, &end, 0) != child || !WIFEXITED(end)) return 99;
  return WEXITSTATUS(end);
}

}  // namespace

int main() {
  if (!use_memory()) return 98;
  return in_children(2, 5);
}
