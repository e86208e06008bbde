// SPDX-License-Identifier: Apache-2.0
// 64 threads that look up the driver's functions at once, each in its own way, and allocate.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "routes.hpp"

namespace {

constexpr int threads = 64;
constexpr int rounds = 20;

std::atomic<int> ready{0};
std::atomic<int> failures{0};

// No thread starts before all have arrived.
void wait_for_the_others() {
  ++ready;
  while (ready < threads) std::this_thread::yield();
}

Calls look_up(int thread) {
  switch (thread % 3) {
    case 0:
      return calls_by_dlsym();
    case 1:
      return calls_by_proc_address(12000, 0);
    default:
      return calls_by_proc_address(13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  }
}

void work(int thread) {
  wait_for_the_others();
  const Calls calls = look_up(thread);
  CUcontext context = nullptr;
  if (calls.cuInit_(0) != CUDA_SUCCESS) ++failures;
  if (calls.cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS) ++failures;
  if (calls.cuCtxSetCurrent_(context) != CUDA_SUCCESS) ++failures;
  for (int i = 0; i < rounds; ++i) {
    CUdeviceptr blocking = 0;
    CUdeviceptr ordered = 0;
    if (calls.cuMemAlloc_(&blocking, 4096 * (thread + 1)) != CUDA_SUCCESS) ++failures;
    if (calls.cuMemAllocAsync_(&ordered, 4096, nullptr) != CUDA_SUCCESS) ++failures;
    if (calls.cuMemsetD32_(blocking, 1, 1024) != CUDA_SUCCESS) ++failures;
    if (calls.cuMemcpyDtoDAsync_(ordered, blocking, 4096, nullptr) != CUDA_SUCCESS) ++failures;
    if (calls.cuMemFreeAsync_(ordered, nullptr) != CUDA_SUCCESS) ++failures;
    if (calls.cuMemFree_(blocking) != CUDA_SUCCESS) ++failures;
  }
}

}  // namespace

int main() {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (std::thread& one : all) one.join();
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
