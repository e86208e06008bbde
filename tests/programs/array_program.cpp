// SPDX-License-Identifier: Apache-2.0
// Holds memory that cuvmm serves and an array that the driver serves, and checks the contents of
// both at every step, while a second thread asks for free memory. Arguments: steps, and the
// milliseconds between them.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "examples/driver_calls.hpp"
#include "examples/driver_check.hpp"

const char* const program = "array";

namespace {

constexpr std::size_t served = std::size_t{32} << 20;
constexpr std::size_t width = 1024;  // elements of 16 bytes
constexpr std::size_t height = 1024;

CUarray make_array() {
  CUDA_ARRAY_DESCRIPTOR wanted{};
  wanted.Width = width;
  wanted.Height = height;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  wanted.NumChannels = 4;
  CUarray array = nullptr;
  check(CALL(cuArrayCreate)(&array, &wanted), "cuArrayCreate");
  return array;
}

void copy(CUarray array, std::vector<std::uint32_t>& words, bool to_array) {
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = width * 16;
  copy.Height = height;
  (to_array ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_HOST;
  (to_array ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_ARRAY;
  (to_array ? copy.dstArray : copy.srcArray) = array;
  copy.srcHost = copy.dstHost = words.data();
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes;
  check(CALL(cuMemcpy2D)(&copy), "cuMemcpy2D");
}

bool hold(const std::vector<std::uint32_t>& words, std::uint32_t number) {
  for (const std::uint32_t word : words) {
    if (word != number) return false;
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  const int steps = count > 1 ? std::atoi(words[1]) : 50;
  const auto rest = std::chrono::milliseconds{count > 2 ? std::atoi(words[2]) : 20};
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  CUdeviceptr memory = 0;
  check(CALL(cuMemAlloc)(&memory, served), "cuMemAlloc");
  const CUarray array = make_array();

  std::atomic<bool> ends{false};
  std::thread asks{[&] {
    check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
    for (std::size_t free = 0, total = 0; !ends; std::this_thread::sleep_for(rest)) {
      check(CALL(cuMemGetInfo)(&free, &total), "cuMemGetInfo");
    }
  }};
  int right = 0;
  std::vector<std::uint32_t> in_array(width * height * 4);
  std::vector<std::uint32_t> in_memory(served / 4);
  for (int step = 1; step <= steps; ++step) {
    const auto number = static_cast<std::uint32_t>(step);
    check(CALL(cuMemsetD32)(memory, number, served / 4), "cuMemsetD32");
    in_array.assign(in_array.size(), number);
    copy(array, in_array, true);
    in_array.assign(in_array.size(), 0);
    std::this_thread::sleep_for(rest);
    copy(array, in_array, false);
    check(CALL(cuMemcpyDtoH)(in_memory.data(), memory, served), "cuMemcpyDtoH");
    right += hold(in_array, number) && hold(in_memory, number) ? 1 : 0;
  }
  ends = true;
  asks.join();
  std::printf("%d of %d steps found what they had written\n", right, steps);
  return right == steps ? 0 : 1;
}
