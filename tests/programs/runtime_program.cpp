// SPDX-License-Identifier: Apache-2.0
// Allocates memory in every way that the CUDA runtime offers, uses it, checks it, frees it. Prints
// one line per step without addresses, so that two runs can be compared letter by letter, and at
// the end the number of allocations that it was granted.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

int granted = 0;

void check(cudaError_t answer, const char* step) {
  if (answer == cudaSuccess) return;
  std::printf("%s answered %d\n", step, static_cast<int>(answer));
  std::exit(1);
}

void count(cudaError_t answer, const char* step) {
  check(answer, step);
  ++granted;
}

std::uint64_t sum_of(const void* memory, std::size_t size) {
  std::vector<std::uint32_t> host(size / 4);
  check(cudaMemcpy(host.data(), memory, size, cudaMemcpyDefault), "copy to the host");
  std::uint64_t sum = 0;
  for (const std::uint32_t word : host) sum = sum * 31 + word;
  return sum;
}

void fill(void* memory, std::size_t size, std::uint32_t seed) {
  std::vector<std::uint32_t> host(size / 4);
  for (std::size_t i = 0; i < host.size(); ++i) {
    host[i] = seed + static_cast<std::uint32_t>(i) * 2654435761U;
  }
  check(cudaMemcpy(memory, host.data(), size, cudaMemcpyDefault), "copy to the device");
}

void report(const char* step, std::uint64_t value) {
  std::printf("%-24s %016llx\n", step, static_cast<unsigned long long>(value));
}

void use_blocking_memory() {
  for (const std::size_t size : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{40} << 20}) {
    void* memory = nullptr;
    count(cudaMalloc(&memory, size), "cudaMalloc");
    fill(memory, size, static_cast<std::uint32_t>(size));
    report("blocking", sum_of(memory, size));
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "attributes");
    report("its type", static_cast<std::uint64_t>(attributes.type));
    check(cudaFree(memory), "cudaFree");
  }
}

void use_ordered_memory() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "stream");
  for (cudaStream_t on : {cudaStream_t{nullptr}, stream}) {
    void* first = nullptr;
    void* second = nullptr;
    const std::size_t size = 5 << 20;
    count(cudaMallocAsync(&first, size, on), "cudaMallocAsync");
    count(cudaMallocAsync(&second, size, on), "cudaMallocAsync");
    check(cudaMemsetAsync(first, 0x5a, size, on), "set");
    check(cudaMemcpyAsync(second, first, size, cudaMemcpyDefault, on), "copy");
    check(cudaFreeAsync(first, on), "cudaFreeAsync");
    check(cudaStreamSynchronize(on), "wait");
    report("stream-ordered", sum_of(second, size));
    check(cudaFreeAsync(second, on), "cudaFreeAsync");
  }
  check(cudaStreamDestroy(stream), "destroy stream");
}

void use_other_memory() {
  void* pitched = nullptr;
  std::size_t pitch = 0;
  count(cudaMallocPitch(&pitched, &pitch, 1000, 33), "cudaMallocPitch");
  check(cudaMemset2D(pitched, pitch, 7, 1000, 33), "set");
  check(cudaFree(pitched), "cudaFree");

  void* managed = nullptr;
  count(cudaMallocManaged(&managed, 4096), "cudaMallocManaged");
  std::memset(managed, 3, 4096);
  report("managed", sum_of(managed, 4096));
  check(cudaFree(managed), "cudaFree");

  void* host = nullptr;
  count(cudaMallocHost(&host, 4096), "cudaMallocHost");
  std::memset(host, 4, 4096);
  report("host", sum_of(host, 4096));
  check(cudaFreeHost(host), "cudaFreeHost");
}

void be_refused() {
  void* memory = nullptr;
  std::printf("beyond the card          %d\n",
              static_cast<int>(cudaMalloc(&memory, std::size_t{1} << 50)));
  std::printf("then                     %d\n", static_cast<int>(cudaGetLastError()));
}

}  // namespace

int main() {
  check(cudaSetDevice(0), "cudaSetDevice");
  use_blocking_memory();
  std::thread{[] { use_ordered_memory(); }}.join();
  use_ordered_memory();
  use_other_memory();
  be_refused();
  std::printf("granted %d\n", granted);
  check(cudaDeviceReset(), "reset");
  return 0;
}
