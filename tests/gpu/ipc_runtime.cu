// SPDX-License-Identifier: Apache-2.0
// Memory of one process in another through the runtime's IPC calls, as programs use them:
//
//   ipc_runtime            starts itself again as the other process
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

#define NEED(call)                                                         \
  do {                                                                     \
    const cudaError_t answer = (call);                                     \
    if (answer != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(answer)); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

__global__ void add(unsigned* data, size_t count, unsigned step) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < count) data[i] += step;
}

void add_on_device(unsigned* data, size_t count, unsigned step) {
  add<<<static_cast<unsigned>((count + 255) / 256), 256>>>(data, count, step);
  NEED(cudaGetLastError());
  NEED(cudaDeviceSynchronize());
}

// Sizes below 64 KiB, below and above 2 MiB, and large.
constexpr size_t counts[] = {100, 30'000, 400'000, 1'500'000, 64'000'000};

template <class T>
void put(int pipe, const T& value) {
  if (::write(pipe, &value, sizeof value) != sizeof value) std::exit(1);
}
template <class T>
T get(int pipe) {
  T value;
  if (::read(pipe, &value, sizeof value) != sizeof value) std::exit(1);
  return value;
}

int other_process(int in, int out) {
  for (const size_t count : counts) {
    const auto handle = get<cudaIpcMemHandle_t>(in);
    void* first = nullptr;
    void* second = nullptr;
    NEED(cudaIpcOpenMemHandle(&first, handle, cudaIpcMemLazyEnablePeerAccess));
    NEED(cudaIpcOpenMemHandle(&second, handle, cudaIpcMemLazyEnablePeerAccess));
    if (first != second) std::exit((std::fprintf(stderr, "two addresses\n"), 1));
    add_on_device(static_cast<unsigned*>(first), count, 5);
    NEED(cudaIpcCloseMemHandle(first));
    add_on_device(static_cast<unsigned*>(second), count, 2);
    NEED(cudaIpcCloseMemHandle(second));
    put(out, 'd');
  }
  return 0;
}

}  // namespace

int main(int words, char** word) {
  if (words == 3) return other_process(std::atoi(word[1]), std::atoi(word[2]));
  int to[2];
  int from[2];
  if (::pipe(to) != 0 || ::pipe(from) != 0) return 1;
  const pid_t child = ::fork();  // before CUDA is initialized
  if (child == 0) {
    char in[16];
    char out[16];
    std::snprintf(in, sizeof in, "%d", to[0]);
    std::snprintf(out, sizeof out, "%d", from[1]);
    ::execl(word[0], word[0], in, out, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  for (const size_t count : counts) {
    unsigned* data = nullptr;
    NEED(cudaMalloc(&data, count * sizeof *data));
    NEED(cudaMemset(data, 0, count * sizeof *data));
    cudaIpcMemHandle_t handle;
    NEED(cudaIpcGetMemHandle(&handle, data));
    put(to[1], handle);
    (void)get<char>(from[0]);
    std::vector<unsigned> seen(count);
    NEED(cudaMemcpy(seen.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost));
    for (const unsigned value : seen) {
      if (value != 7) return std::fprintf(stderr, "%u instead of 7\n", value), 1;
    }
    NEED(cudaFree(data));
    std::printf("%zu integers: opened twice, changed there, seen here\n", count);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
