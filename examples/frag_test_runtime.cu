// SPDX-License-Identifier: Apache-2.0
// The same as frag_test.cpp with the runtime's cudaMalloc and cudaFree, linked statically, as
// nvcc does it unless told otherwise. Needs a real card.
#include <cuda_runtime.h>

#include "comb.hpp"

namespace {

void check(cudaError_t answer, const char* what) {
  if (answer != cudaSuccess) comb::give_up(what, answer);
}

class RuntimeMemory final : public comb::Memory {
 public:
  RuntimeMemory() { check(cudaFree(nullptr), "cudaFree of nothing"); }  // makes the context

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
      cudaGetLastError();  // or the next call reports it again
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
    check(cudaMemcpy2D(reinterpret_cast<void*>(to), pitch, from, width, width, rows,
                       cudaMemcpyHostToDevice),
          "cudaMemcpy2D to the device");
  }
  void read(void* to, comb::Address from, comb::Size pitch, comb::Size width,
            comb::Size rows) override {
    check(cudaMemcpy2D(to, width, reinterpret_cast<const void*>(from), pitch, width, rows,
                       cudaMemcpyDeviceToHost),
          "cudaMemcpy2D to the host");
  }

 private:
  struct Info {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  static Info info() {
    Info info;
    check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo");
    return info;
  }
};

}  // namespace

int main(int count, char** words) {
  const comb::Request request = comb::read_words(count, words);
  RuntimeMemory memory;
  return comb::Comb{memory, request}.run();
}
