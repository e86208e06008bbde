// SPDX-License-Identifier: Apache-2.0
// A program on a driver newer than cuvmm, to which it is linked.
//   early FILE, late FILE, deep FILE
//             opens the library before, or after, it uses the driver, or after with RTLD_DEEPBIND.
//             The library fills memory, which the program frees and takes again meanwhile. Prints
//             how many bytes of the second allocation are not its own.
//   default, next
//             the same with a function that the program itself looks up in that scope
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
#include <functional>
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

using Fill = std::function<int(CUdeviceptr, size_t)>;

void free_what_is_filled(const std::function<Fill()>& find_fill) {
  constexpr size_t size = 8UL << 20;
  start();
  const CUdeviceptr filled = allocated(size);
  // From here on the device is known to be idle.
  check(cuMemsetD8(filled, 1, size), "cuMemsetD8");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  check(cuMemFree(allocated(size)), "cuMemFree");
  check(static_cast<CUresult>(find_fill()(filled, size)), "filling");
  check(cuMemFree(filled), "cuMemFree");

  const CUdeviceptr own = allocated(size);
  std::vector<unsigned char> bytes(size, 7);
  check(cuMemcpyHtoD(own, bytes.data(), size), "cuMemcpyHtoD");
  sleep(1);
  check(cuMemcpyDtoH(bytes.data(), own, size), "cuMemcpyDtoH");
  const auto kept = std::count(bytes.begin(), bytes.end(), 7);
  std::printf("%zu bytes changed\n", size - static_cast<size_t>(kept));
}

void free_what_a_library_fills(const std::string& when, const char* file) {
  void* const early = when == "early" ? dlopen(file, RTLD_NOW) : nullptr;
  free_what_is_filled([&]() -> Fill {
    const int how = RTLD_NOW | (when == "deep" ? RTLD_DEEPBIND : 0);
    void* const library = early != nullptr ? early : dlopen(file, how);
    return reinterpret_cast<int (*)(CUdeviceptr, size_t)>(dlsym(library, "fill_for_long"));
  });
}

void free_what_a_looked_up_function_fills(void* scope) {
  free_what_is_filled([&]() -> Fill {
    using Set = CUresult (*)(CUdeviceptr, unsigned char, size_t, CUstream);
    const auto set = reinterpret_cast<Set>(dlsym(scope, "cuFutureSetAsync"));
    return [set](CUdeviceptr address, size_t size) {
      CUstream stream = nullptr;
      CUresult answer = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      for (int i = 0; answer == CUDA_SUCCESS && i < 300; ++i) {
        answer = set(address, 0xee, size, stream);
      }
      return static_cast<int>(answer);
    };
  });
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
  } else if (count == 2 && std::strcmp(words[1], "default") == 0) {
    free_what_a_looked_up_function_fills(RTLD_DEFAULT);
  } else if (count == 2 && std::strcmp(words[1], "next") == 0) {
    free_what_a_looked_up_function_fills(RTLD_NEXT);
  } else if (count == 3) {
    free_what_a_library_fills(words[1], words[2]);
  } else {
    return 2;
  }
  return 0;
}
