// SPDX-License-Identifier: Apache-2.0
// Holds memory that cuvmm serves and an array that the driver serves, and checks the contents of
// both at every step, while a second thread asks for free memory. Arguments: steps, the
// milliseconds between them, and perhaps a folder, where the file `holds` then says that the first
// step is done, and where the program awaits the file `ends` after its last step, with more steps.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "memory_and_array.hpp"

const char* const program = "array";

int main(int count, char** words) {
  const int steps = count > 1 ? std::atoi(words[1]) : 50;
  const auto rest = std::chrono::milliseconds{count > 2 ? std::atoi(words[2]) : 20};
  const std::string folder = count > 3 ? words[3] : "";
  constexpr int most_steps = 10'000;  // should nobody write `ends`
  const auto may_end = [&](int done) {
    if (done < steps) return false;
    return folder.empty() || done == most_steps || ::access((folder + "/ends").c_str(), F_OK) == 0;
  };
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  MemoryAndArray held{std::size_t{4} << 20};

  std::atomic<bool> ends{false};
  std::thread asks{[&] {
    check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
    for (std::size_t free = 0, total = 0; !ends; std::this_thread::sleep_for(rest)) {
      check(CALL(cuMemGetInfo)(&free, &total), "cuMemGetInfo");
    }
  }};
  int right = 0;
  int step = 0;
  while (!may_end(step)) {
    const auto number = static_cast<std::uint32_t>(++step);
    held.write(number);
    std::this_thread::sleep_for(rest);
    right += held.holds(number) ? 1 : 0;
    if (step == 1 && !folder.empty()) std::ofstream{folder + "/holds"} << "it does";
  }
  ends = true;
  asks.join();
  std::printf("%d of %d steps read back what they wrote\n", right, step);
  return right == step ? 0 : 1;
}
