// SPDX-License-Identifier: Apache-2.0
// A program on a driver newer than cuvmm, to which it is linked.
//   early FILE, late FILE, deep FILE
//             opens the library before, or after, it uses the driver, or after with RTLD_DEEPBIND.
//             The library fills memory, which the program frees and takes again meanwhile. Prints
//             how many bytes of the second allocation are not its own.
//   cancel    cancels a thread that waits for the device.
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  std::printf("%s answers %d\n", what, answer);
  std::exit(2);
}

CUcontext start() {
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return context;
}

CUdeviceptr allocated(size_t size) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, size), "cuMemAlloc");
  return address;
}

void free_what_a_library_fills(const std::string& when, const char* file) {
  constexpr size_t size = 8UL << 20;
  void* library = when == "early" ? dlopen(file, RTLD_NOW) : nullptr;
  start();
  const CUdeviceptr filled = allocated(size);
  // From here on the device is known to be idle.
  check(cuMemsetD8(filled, 1, size), "cuMemsetD8");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  check(cuMemFree(allocated(size)), "cuMemFree");
  if (library == nullptr) library = dlopen(file, RTLD_NOW | (when == "deep" ? RTLD_DEEPBIND : 0));
  const auto fill = reinterpret_cast<int (*)(CUdeviceptr, size_t)>(dlsym(library, "fill_for_long"));
  check(static_cast<CUresult>(fill(filled, size)), "filling");
  check(cuMemFree(filled), "cuMemFree");

  const CUdeviceptr own = allocated(size);
  std::vector<unsigned char> bytes(size, 7);
  check(cuMemcpyHtoD(own, bytes.data(), size), "cuMemcpyHtoD");
  sleep(1);
  check(cuMemcpyDtoH(bytes.data(), own, size), "cuMemcpyDtoH");
  const auto kept = std::count(bytes.begin(), bytes.end(), 7);
  std::printf("%zu bytes changed\n", size - static_cast<size_t>(kept));
}

std::atomic<bool> waits{false};
std::atomic<bool> may_end{false};

void* wait_for_the_device(void* context) {
  check(cuCtxSetCurrent(static_cast<CUcontext>(context)), "cuCtxSetCurrent");
  pthread_cleanup_push([](void*) { std::printf("cleanup\n"); }, nullptr);
  waits = true;
  cuCtxSynchronize();
  pthread_cleanup_pop(0);
  return nullptr;
}

void cancel_a_thread() {
  CUcontext context = start();
  const auto endless = [](void*) {
    while (!may_end) usleep(1000);
  };
  check(cuLaunchHostFunc(nullptr, endless, nullptr), "cuLaunchHostFunc");
  pthread_t thread{};
  pthread_create(&thread, nullptr, &wait_for_the_device, context);
  while (!waits) usleep(1000);
  usleep(100'000);
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  std::printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
  may_end = true;
  check(cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "cancel") == 0) {
    cancel_a_thread();
  } else if (count == 3) {
    free_what_a_library_fills(words[1], words[2]);
  } else {
    return 2;
  }
  return 0;
}
