// SPDX-License-Identifier: Apache-2.0
// Grows a buffer as CUDA programs do: cudaMalloc of a larger one, cudaMemcpy, cudaFree. Kernels
// write it and read it back. Runs on a real card and on the simulated driver:
//
//   nvcc -O2 -o resize_test resize_test.cu
//   cuvmm run --sim -- ./resize_test
#include <cuda_runtime.h>

#include "growth.hpp"

namespace {

void check(cudaError_t answer, const char* what) {
  if (answer == cudaSuccess) return;
  growth::give_up(what,
                std::string{cudaGetErrorName(answer)} + " (" + cudaGetErrorString(answer) + ")");
}

void* pointer(growth::Address address) {
  return reinterpret_cast<void*>(address);
}

struct Mark {
  std::uint64_t words[2];
};

__global__ void write_mark(Mark* place, Mark mark) {
  *place = mark;
}

__global__ void read_mark(Mark* found, const Mark* place) {
  *found = *place;
}

class RuntimeMemory final : public growth::Memory {
 public:
  RuntimeMemory() {
    check(cudaMalloc(&found_, sizeof(Mark)), "cudaMalloc of a mark");
    write_mark<<<1, 1>>>(found_, Mark{});  // load the kernels before measuring
    read_mark<<<1, 1>>>(found_, found_);
    check(cudaDeviceSynchronize(), "the kernels");
  }
  ~RuntimeMemory() override { cudaFree(found_); }

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
    Mark mark{};
    std::memcpy(&mark, from, size);
    write_mark<<<1, 1>>>(static_cast<Mark*>(pointer(to)), mark);
    check(cudaGetLastError(), "write_mark");
  }
  void read(void* to, growth::Address from, growth::Size size) override {
    read_mark<<<1, 1>>>(found_, static_cast<const Mark*>(pointer(from)));
    check(cudaGetLastError(), "read_mark");
    check(cudaMemcpy(to, found_, size, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
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

  Mark* found_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  const growth::Request request = growth::read_words(count, words);
  RuntimeMemory memory;
  return growth::Growth{memory, request}.run();
}
