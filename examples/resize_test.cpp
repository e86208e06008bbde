// SPDX-License-Identifier: Apache-2.0
// Grows a buffer with the driver's own cuMemAlloc, cuMemcpyDtoD and cuMemFree. The same program
// runs on a real card and on the simulated driver, with cuvmm or without:
//
//   build/bin/resize_test
//   build/bin/cuvmm run --sim -- build/bin/resize_test
#include "driver_calls.hpp"
#include "growth.hpp"

namespace {

[[noreturn]] void missing_driver(const char* symbol) {
  driver_calls::end_without_driver("resize_test", symbol, growth::Broken);
}

void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) growth::give_up(what, driver_calls::error_text(answer));
}

class DriverMemory final : public growth::Memory {
 public:
  DriverMemory() {
    check(CALL(cuInit)(0), "cuInit");
    check(CALL(cuDeviceGet)(&device_, 0), "cuDeviceGet");
    check(CALL(cuDevicePrimaryCtxRetain)(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(CALL(cuCtxSetCurrent)(context_), "cuCtxSetCurrent");
  }
  ~DriverMemory() override { CALL(cuDevicePrimaryCtxRelease)(device_); }

  const char* functions() const override { return "cuMemAlloc, cuMemcpyDtoD and cuMemFree"; }

  std::string device_name() override {
    char name[256] = "";
    check(CALL(cuDeviceGetName)(name, sizeof name, device_), "cuDeviceGetName");
    return name;
  }
  growth::Size total() override { return info().total; }
  growth::Size free() override { return info().free; }

  growth::Address allocate(growth::Size size) override {
    CUdeviceptr address = 0;
    const CUresult answer = allocate_(&address, size);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    check(answer, "cuMemAlloc");
    return address;
  }
  void release(growth::Address address) override { check(free_(address), "cuMemFree"); }
  void copy(growth::Address to, growth::Address from, growth::Size size) override {
    check(copy_(to, from, size), "cuMemcpyDtoD");
  }
  void wait() override { check(wait_(), "cuCtxSynchronize"); }
  void write(growth::Address to, const void* from, growth::Size size) override {
    check(write_(to, from, size), "cuMemcpyHtoD");
  }
  void read(void* to, growth::Address from, growth::Size size) override {
    check(read_(to, from, size), "cuMemcpyDtoH");
  }

 private:
  struct Info {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  static Info info() {
    Info info;
    check(CALL(cuMemGetInfo)(&info.free, &info.total), "cuMemGetInfo");
    return info;
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  decltype(&cuMemAlloc) allocate_ = CALL(cuMemAlloc);
  decltype(&cuMemFree) free_ = CALL(cuMemFree);
  decltype(&cuMemcpyDtoD) copy_ = CALL(cuMemcpyDtoD);
  decltype(&cuMemcpyHtoD) write_ = CALL(cuMemcpyHtoD);
  decltype(&cuMemcpyDtoH) read_ = CALL(cuMemcpyDtoH);
  decltype(&cuCtxSynchronize) wait_ = CALL(cuCtxSynchronize);
};

}  // namespace

int main(int count, char** words) {
  const growth::Request request = growth::read_words(count, words);
  DriverMemory memory;
  return growth::Growth{memory, request}.run();
}
