// SPDX-License-Identifier: Apache-2.0
// Fragmentation in a CUDA program: cudaMalloc and cudaFree, and kernels that write the blocks and
// read them back. The same program runs on a real card and on the simulated driver:
//
//   nvcc -O2 -o frag_test frag_test.cu
//   cuvmm run --sim --mode off -- ./frag_test    fails: the free memory is in pieces
//   cuvmm run --sim -- ./frag_test               succeeds
#include <cuda_runtime.h>

#include <algorithm>

#include "comb.hpp"

namespace {

void check(cudaError_t answer, const char* what) {
  if (answer == cudaSuccess) return;
  comb::give_up(what,
                std::string{cudaGetErrorName(answer)} + " (" + cudaGetErrorString(answer) + ")");
}

// Writes rows of `width` words that begin `pitch` words apart in `block`.
__global__ void write_rows(std::uint32_t* block, std::size_t pitch, const std::uint32_t* rows,
                           unsigned width) {
  const std::size_t row = blockIdx.x;
  for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
    block[row * pitch + i] = rows[row * width + i];
  }
}

__global__ void read_rows(std::uint32_t* rows, const std::uint32_t* block, std::size_t pitch,
                          unsigned width) {
  const std::size_t row = blockIdx.x;
  for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
    rows[row * width + i] = block[row * pitch + i];
  }
}

class RuntimeMemory final : public comb::Memory {
 public:
  // Allocates what the kernels need before the card is full.
  RuntimeMemory() {
    check(cudaMalloc(&staging_, staging_bytes), "cudaMalloc of the staging buffer");
    write_rows<<<1, 32>>>(staging_, 1, staging_, 1);
    read_rows<<<1, 32>>>(staging_, staging_, 1, 1);
    check(cudaDeviceSynchronize(), "the kernels");
  }
  ~RuntimeMemory() override { cudaFree(staging_); }

  const char* functions() const override { return "cudaMalloc and cudaFree"; }

  std::string device_name() override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return properties.name;
  }
  comb::Size total() override { return info().total; }
  comb::Size free() override { return info().free; }

  comb::Address allocate(comb::Size size) override {
    void* address = nullptr;
    const cudaError_t answer = cudaMalloc(&address, size);
    if (answer == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // otherwise the next call reports it again
      return 0;
    }
    check(answer, "cudaMalloc");
    return reinterpret_cast<comb::Address>(address);
  }
  void release(comb::Address address) override {
    check(cudaFree(reinterpret_cast<void*>(address)), "cudaFree");
  }

  void write(comb::Address to, comb::Size pitch, const void* from, comb::Size width,
             comb::Size rows) override {
    for_some_rows(width, rows, [&](comb::Size first, unsigned count) {
      check(cudaMemcpy(staging_, static_cast<const char*>(from) + first * width, count * width,
                       cudaMemcpyHostToDevice),
            "cudaMemcpy to the device");
      write_rows<<<count, threads>>>(words_at(to + first * pitch), pitch / word, staging_,
                                     static_cast<unsigned>(width / word));
      check(cudaGetLastError(), "write_rows");
    });
  }
  void read(void* to, comb::Address from, comb::Size pitch, comb::Size width,
            comb::Size rows) override {
    for_some_rows(width, rows, [&](comb::Size first, unsigned count) {
      read_rows<<<count, threads>>>(staging_, words_at(from + first * pitch), pitch / word,
                                    static_cast<unsigned>(width / word));
      check(cudaGetLastError(), "read_rows");
      check(cudaMemcpy(static_cast<char*>(to) + first * width, staging_, count * width,
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy to the host");
    });
  }

 private:
  static constexpr comb::Size word = sizeof(std::uint32_t);
  static constexpr comb::Size staging_bytes = 256 << 10;
  static constexpr unsigned threads = 64;

  static std::uint32_t* words_at(comb::Address address) {
    return reinterpret_cast<std::uint32_t*>(address);
  }
  // Processes as many rows at a time as the staging buffer holds.
  template <class Function>
  static void for_some_rows(comb::Size width, comb::Size rows, Function&& function) {
    const comb::Size most = staging_bytes / width;
    for (comb::Size first = 0; first < rows; first += most) {
      function(first, static_cast<unsigned>(std::min(most, rows - first)));
    }
  }

  struct Info {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  static Info info() {
    Info info;
    check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo");
    return info;
  }

  std::uint32_t* staging_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  const comb::Request request = comb::read_words(count, words);
  RuntimeMemory memory;
  return comb::Comb{memory, request}.run();
}
