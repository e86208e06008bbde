// SPDX-License-Identifier: Apache-2.0
// The same as resize_test.cpp with the runtime's cudaMalloc, cudaMemcpy and cudaFree, linked
// statically, as nvcc does it unless told otherwise. Needs a real card.
#include <cuda_runtime.h>

#include "growth.hpp"

namespace {

void check(cudaError_t answer, const char* what) {
  if (answer != cudaSuccess) growth::give_up(what, answer);
}

void* pointer(growth::Address address) {
  return reinterpret_cast<void*>(address);
}

class RuntimeMemory final : public growth::Memory {
 public:
  RuntimeMemory() { check(cudaFree(nullptr), "cudaFree of nothing"); }  // makes the context

  const char* functions() const override { return "cudaMalloc, cudaMemcpy and cudaFree"; }

  std::string device_name() override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return properties.name;
  }
  growth::Size total() override { return info().total; }
  growth::Size free() override { return info().free; }

  growth::Address allocate(growth::Size size) override {
    void* address = nullptr;
    const cudaError_t answer = cudaMalloc(&address, size);
    if (answer == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return 0;
    }
    check(answer, "cudaMalloc");
    return reinterpret_cast<growth::Address>(address);
  }
  void release(growth::Address address) override { check(cudaFree(pointer(address)), "cudaFree"); }
  void copy(growth::Address to, growth::Address from, growth::Size size) override {
    check(cudaMemcpy(pointer(to), pointer(from), size, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  }
  void wait() override { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  void write(growth::Address to, const void* from, growth::Size size) override {
    check(cudaMemcpy(pointer(to), from, size, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  }
  void read(void* to, growth::Address from, growth::Size size) override {
    check(cudaMemcpy(to, pointer(from), size, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
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
  const growth::Request request = growth::read_words(count, words);
  RuntimeMemory memory;
  return growth::Growth{memory, request}.run();
}
