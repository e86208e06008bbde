// SPDX-License-Identifier: Apache-2.0
// on_demand MIB PIPE: holds that much memory that cuvmm serves and an array that the driver serves,
// and makes a driver call only when a line in the named pipe says so: `check` compares the contents
// and writes new ones, `look` asks which context is current, `share` makes an IPC handle of further
// memory, `grow MIB` allocates more, `shrink` frees that, `also MIB` allocates in another thread,
// and `work` sets what grew in another thread from then on, so that the program is not idle. Says
// what it has done. Ends with the pipe, and with status 1 if any contents were wrong.
#include <chrono>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>

#include "memory_and_array.hpp"

const char* const program = "on_demand";

int main(int count, char** words) {
  if (count != 3) return 2;
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  MemoryAndArray held{static_cast<std::size_t>(std::atoi(words[1])) << 20};
  std::uint32_t number = 1;
  held.write(number);
  std::printf("holds\n");
  std::fflush(stdout);
  CUdeviceptr more = 0;
  std::jthread work;
  std::ifstream pipe{words[2]};
  for (std::string line; std::getline(pipe, line);) {
    if (line == "look") {
      CUcontext current = nullptr;
      check(CALL(cuCtxGetCurrent)(&current), "cuCtxGetCurrent");
      std::printf("looked\n");
    } else if (line == "shrink") {
      check(CALL(cuMemFree)(more), "cuMemFree");
      std::printf("shrank\n");
    } else if (line.starts_with("grow ")) {
      const CUresult answer = CALL(cuMemAlloc)(&more, std::stoul(line.substr(5)) << 20);
      std::printf("grew: %d\n", static_cast<int>(answer));
    } else if (line.starts_with("also ")) {
      std::thread{[context, size = std::stoul(line.substr(5)) << 20] {
        CUdeviceptr also = 0;
        check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
        const CUresult answer = CALL(cuMemAlloc)(&also, size);
        std::printf("also: %d\n", static_cast<int>(answer));
        std::fflush(stdout);
      }}.detach();
    } else if (line == "work") {
      work = std::jthread{[context, block = more](const std::stop_token& ends) {
        check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
        while (!ends.stop_requested()) {
          check(CALL(cuMemsetD32)(block, 1, 1), "cuMemsetD32");
          std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
      }};
      std::printf("works\n");
    } else if (line == "share") {
      CUdeviceptr shared = 0;
      CUipcMemHandle handle{};
      check(CALL(cuMemAlloc)(&shared, std::size_t{4} << 20), "cuMemAlloc");
      check(CALL(cuIpcGetMemHandle)(&handle, shared), "cuIpcGetMemHandle");
      std::printf("shared\n");
    } else {
      if (!held.holds(number)) return std::printf("wrong\n"), 1;
      held.write(++number);
      std::printf("right %u\n", number - 1);
    }
    std::fflush(stdout);
  }
  std::printf("ended well\n");
  return 0;
}
