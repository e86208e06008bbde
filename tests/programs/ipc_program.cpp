// SPDX-License-Identifier: Apache-2.0
// Memory of one process in another through an IPC handle:
//
//   ipc_program give         prints the handle of a block that it has filled, and waits for input
//   ipc_program take HANDLE  prints "opened 7", or "refused N" if cuIpcOpenMemHandle answers N
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "examples/driver_calls.hpp"

namespace {

constexpr size_t size = size_t{4} << 20;
constexpr unsigned word = 7;

[[noreturn]] void missing_driver(const char*) {
  std::exit(3);
}

void need(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %d\n", what, int{answer});
  std::exit(1);
}

int give() {
  CUdeviceptr address = 0;
  need(CALL(cuMemAlloc)(&address, size), "cuMemAlloc");
  need(CALL(cuMemsetD32)(address, word, size / sizeof word), "cuMemsetD32");
  need(CALL(cuCtxSynchronize)(), "cuCtxSynchronize");
  CUipcMemHandle handle;
  need(CALL(cuIpcGetMemHandle)(&handle, address), "cuIpcGetMemHandle");
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
  (void)std::getchar();
  need(CALL(cuMemFree)(address), "cuMemFree");
  return 0;
}

int take(const char* text) {
  CUipcMemHandle handle{};
  if (std::strlen(text) != 2 * sizeof handle.reserved) return 2;
  for (size_t i = 0; i < sizeof handle.reserved; ++i) {
    unsigned byte = 0;
    std::sscanf(text + 2 * i, "%2x", &byte);
    handle.reserved[i] = static_cast<char>(byte);
  }
  CUdeviceptr address = 0;
  const CUresult answer =
      CALL(cuIpcOpenMemHandle)(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (answer != CUDA_SUCCESS) return std::printf("refused %d\n", int{answer}), 0;
  unsigned last = 0;
  need(CALL(cuMemcpyDtoH)(&last, address + size - sizeof last, sizeof last), "cuMemcpyDtoH");
  std::printf("opened %u\n", last);
  need(CALL(cuIpcCloseMemHandle)(address), "cuIpcCloseMemHandle");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  need(CALL(cuInit)(0), "cuInit");
  CUcontext context = nullptr;
  need(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  need(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  if (count == 2 && std::strcmp(words[1], "give") == 0) return give();
  if (count == 3 && std::strcmp(words[1], "take") == 0) return take(words[2]);
  return 2;
}
