// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_driver.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/size.hpp"

namespace cuvmm::bench {
namespace {

const char* driver_path() {
  const char* chosen = std::getenv("CUVMM_TEST_DRIVER");
  return chosen != nullptr ? chosen : simulated_driver_path();
}

Driver load_with_context() {
  Driver loaded = need_ok(load_driver(driver_path()), "load the driver");
  CUdevice device = 0;
  CUcontext context = nullptr;
  need_success(loaded.cuInit(0), "cuInit");
  need_success(loaded.cuDeviceGet(&device, 0), "cuDeviceGet");
  need_success(loaded.cuDevicePrimaryCtxRetain(&context, device), "retain the primary context");
  need_success(loaded.cuCtxSetCurrent(context), "make it current");
  return loaded;
}

std::atomic<CUdeviceptr> next_address{CUdeviceptr{1} << 40};
std::atomic<CUmemGenericAllocationHandle> next_handle{1};

Driver make_silent() {
  Driver silent = driver();
  silent.cuMemGetAllocationGranularity = [](std::size_t* step, const CUmemAllocationProp*,
                                            CUmemAllocationGranularity_flags) {
    *step = usual_granule;
    return CUDA_SUCCESS;
  };
  silent.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 0;
    return CUDA_SUCCESS;
  };
  silent.cuMemAddressReserve = [](CUdeviceptr* address, std::size_t size, std::size_t, CUdeviceptr,
                                  unsigned long long) {
    *address = next_address.fetch_add(size);
    return CUDA_SUCCESS;
  };
  silent.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t,
                          const CUmemAllocationProp*, unsigned long long) {
    *handle = next_handle++;
    return CUDA_SUCCESS;
  };
  silent.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
  silent.cuMemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  silent.cuMemMap = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                       unsigned long long) { return CUDA_SUCCESS; };
  silent.cuMemUnmap = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
  silent.cuMemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
    return CUDA_SUCCESS;
  };
  return silent;
}

}  // namespace

const char* simulated_driver_path() {
  static const std::string* path = [] {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    return new std::string{program.parent_path().parent_path() / CUVMM_SIM_BELOW_BUILD};
  }();
  return path->c_str();
}

const Driver& driver() {
  static const Driver* loaded = new Driver{load_with_context()};
  return *loaded;
}

bool simulated() {
  return std::getenv("CUVMM_TEST_DRIVER") == nullptr;
}

const Driver& silent_driver() {
  static const Driver* silent = new Driver{make_silent()};
  return *silent;
}

void need(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "benchmark cannot go on: %s\n", what);
  std::exit(1);
}

double Times::now() const {
  timespec time{};
  ::clock_gettime(clock_ == Clock::Wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double Times::median_microseconds() const {
  if (seconds_.empty()) return 0;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle * 1e6;
}

int run(int argc, char** argv) {
  char name[256] = "?";
  need_success(driver().cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
  benchmark::AddCustomContext("driver", simulated() ? "the simulated one" : driver_path());
  benchmark::AddCustomContext("device", name);
  const char* backing = std::getenv("VMM_SIM_BACKING");
  if (simulated()) benchmark::AddCustomContext("VMM_SIM_BACKING", backing ? backing : "(default)");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace cuvmm::bench
