// SPDX-License-Identifier: Apache-2.0
// Holds memory that cuvmm serves and an array that the driver serves, and checks the contents of
// both at every step, while a second thread asks for free memory. Arguments: steps, and the
// milliseconds between them.
#include <atomic>
#include <chrono>
#include <thread>

#include "memory_and_array.hpp"

const char* const program = "array";

int main(int count, char** words) {
  const int steps = count > 1 ? std::atoi(words[1]) : 50;
  const auto rest = std::chrono::milliseconds{count > 2 ? std::atoi(words[2]) : 20};
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  MemoryAndArray held{std::size_t{32} << 20};

  std::atomic<bool> ends{false};
  std::thread asks{[&] {
    check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
    for (std::size_t free = 0, total = 0; !ends; std::this_thread::sleep_for(rest)) {
      check(CALL(cuMemGetInfo)(&free, &total), "cuMemGetInfo");
    }
  }};
  int right = 0;
  for (int step = 1; step <= steps; ++step) {
    const auto number = static_cast<std::uint32_t>(step);
    held.write(number);
    std::this_thread::sleep_for(rest);
    right += held.holds(number) ? 1 : 0;
  }
  ends = true;
  asks.join();
  std::printf("%d of %d steps found what they had written\n", right, steps);
  return right == steps ? 0 : 1;
}
