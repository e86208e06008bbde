// SPDX-License-Identifier: Apache-2.0
// Shows fragmentation with the driver's own cuMemAlloc and cuMemFree. The same program runs on a
// real card and on the simulated driver, with cuvmm or without:
//
//   build/bin/frag_test
//   build/bin/cuvmm run --sim -- build/bin/frag_test
#include "comb.hpp"
#include "driver_calls.hpp"

namespace {

[[noreturn]] void missing_driver(const char* symbol) {
  driver_calls::end_without_driver("frag_test", symbol, comb::Broken);
}

void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) comb::give_up(what, driver_calls::error_text(answer));
}

class DriverMemory final : public comb::Memory {
 public:
  DriverMemory() {
    check(CALL(cuInit)(0), "cuInit");
    check(CALL(cuDeviceGet)(&device_, 0), "cuDeviceGet");
    check(CALL(cuDevicePrimaryCtxRetain)(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(CALL(cuCtxSetCurrent)(context_), "cuCtxSetCurrent");
  }
  ~DriverMemory() override { CALL(cuDevicePrimaryCtxRelease)(device_); }

  const char* functions() const override { return "cuMemAlloc and cuMemFree"; }

  std::string device_name() override {
    char name[256] = "";
    check(CALL(cuDeviceGetName)(name, sizeof name, device_), "cuDeviceGetName");
    return name;
  }
  comb::Size total() override { return info().total; }
  comb::Size free() override { return info().free; }

  comb::Address allocate(comb::Size size) override {
    CUdeviceptr address = 0;
    const CUresult answer = allocate_(&address, size);
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    check(answer, "cuMemAlloc");
    return address;
  }
  void release(comb::Address address) override { check(free_(address), "cuMemFree"); }

  void write(comb::Address to, comb::Size pitch, const void* from, comb::Size width,
             comb::Size rows) override {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.srcPitch = width;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.dstPitch = pitch;
    copy.WidthInBytes = width;
    copy.Height = rows;
    check(copy_(&copy), "cuMemcpy2D to the device");
  }
  void read(void* to, comb::Address from, comb::Size pitch, comb::Size width,
            comb::Size rows) override {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcPitch = pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    copy.dstPitch = width;
    copy.WidthInBytes = width;
    copy.Height = rows;
    check(copy_(&copy), "cuMemcpy2D to the host");
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
  // The unaligned variant accepts any pitch.
  decltype(&cuMemcpy2DUnaligned) copy_ = CALL(cuMemcpy2DUnaligned);
};

}  // namespace

int main(int count, char** words) {
  const comb::Request request = comb::read_words(count, words);
  DriverMemory memory;
  return comb::Comb{memory, request}.run();
}
