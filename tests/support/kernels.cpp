// SPDX-License-Identifier: Apache-2.0
#include "support/kernels.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "cuvmm/sim.h"

namespace {

template <class T>
T parameter(const cuvmm_sim_launch* launch, int index) {
  T value;
  std::memcpy(&value, launch->parameters[index], sizeof value);
  return value;
}

// The memory at the device address in this parameter.
template <class T>
T* pointer(const cuvmm_sim_launch* launch, int index) {
  return static_cast<T*>(launch->memory(launch, parameter<std::uint64_t>(launch, index)));
}

}  // namespace

CUVMM_SIM_KERNEL(fill) {
  auto* words = pointer<std::uint32_t>(launch, 0);
  const auto value = parameter<std::uint32_t>(launch, 1);
  const auto count = parameter<std::uint32_t>(launch, 2);
  for (std::uint32_t i = 0; i < count; ++i) words[i] = value;
}

CUVMM_SIM_KERNEL(copy_words) {
  auto* to = pointer<std::uint32_t>(launch, 0);
  const auto* from = pointer<std::uint32_t>(launch, 1);
  const auto count = parameter<std::uint32_t>(launch, 2);
  for (std::uint32_t i = 0; i < count; ++i) to[i] = from[i];
}

CUVMM_SIM_KERNEL(add_one) {
  auto* words = pointer<std::uint32_t>(launch, 0);
  const auto count = parameter<std::uint32_t>(launch, 1);
  for (std::uint32_t i = 0; i < count; ++i) words[i] += 1;
}

CUVMM_SIM_KERNEL(sum) {
  auto* out = pointer<std::uint32_t>(launch, 0);
  const auto* words = pointer<std::uint32_t>(launch, 1);
  const auto count = parameter<std::uint32_t>(launch, 2);
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < count; ++i) total += words[i];
  __atomic_fetch_add(out, total, __ATOMIC_RELAXED);
}

CUVMM_SIM_KERNEL(spin) {
  std::this_thread::sleep_for(std::chrono::nanoseconds{parameter<std::uint64_t>(launch, 0)});
}

CUVMM_SIM_KERNEL(wait_for_flag) {
  auto* flag = pointer<std::uint32_t>(launch, 0);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::nanoseconds{cuvmm::test::wait_for_flag_gives_up_after_nanoseconds};
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
    if (std::chrono::steady_clock::now() >= end) {
      __atomic_store_n(flag + 1, 1u, __ATOMIC_RELEASE);
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

CUVMM_SIM_KERNEL(many_parameters) {
  using cuvmm::test::ThreeWords;
  const auto three = parameter<ThreeWords>(launch, 4);
  const std::uint64_t received[] = {parameter<std::uint8_t>(launch, 0),
                                    parameter<std::uint16_t>(launch, 1),
                                    parameter<std::uint32_t>(launch, 2),
                                    parameter<std::uint64_t>(launch, 3),
                                    three.first,
                                    three.second,
                                    three.third};
  std::memcpy(pointer<std::uint64_t>(launch, 5), received, sizeof received);
}

namespace cuvmm::test {
namespace {

CUfunction function(CUmodule module, const char* name) {
  CUfunction found = nullptr;
  given(driver().cuModuleGetFunction(&found, module, name), name);
  return found;
}

}  // namespace

Kernels::Kernels() {
  GIVEN(driver().cuModuleLoadData(&module_, kernels_ptx()));
  fill = function(module_, "fill");
  copy_words = function(module_, "copy_words");
  add_one = function(module_, "add_one");
  sum = function(module_, "sum");
  spin = function(module_, "spin");
  wait_for_flag = function(module_, "wait_for_flag");
  many_parameters = function(module_, "many_parameters");
}

Kernels::~Kernels() {
  EXPECT_CUDA(driver().cuModuleUnload(module_));
}

HostFlag::HostFlag() {
  void* host = nullptr;
  GIVEN(driver().cuMemHostAlloc(&host, 2 * sizeof *words_,
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  words_ = static_cast<std::uint32_t*>(host);
  std::memset(words_, 0, 2 * sizeof *words_);
  GIVEN(driver().cuMemHostGetDevicePointer(&address_, host, 0));
}

HostFlag::~HostFlag() {
  EXPECT_CUDA(driver().cuMemFreeHost(words_));
}

SlowWork::SlowWork(const Kernels& kernels, CUstream stream) : stream_(stream) {
  GIVEN(launch(kernels.wait_for_flag, stream, Shape{.grid = 1, .block = 1}, flag_.address()));
}

SlowWork::~SlowWork() {
  flag_.set();
  EXPECT_CUDA(driver().cuStreamSynchronize(stream_));
  EXPECT_FALSE(flag_.given_up_on()) << "the test waited for work that only it could end";
}

GivenStream::GivenStream(unsigned flags) {
  GIVEN(driver().cuStreamCreate(&stream_, flags));
}

GivenStream::~GivenStream() {
  if (stream_ != nullptr) {
    EXPECT_CUDA(destroy());
  }
}

CUresult GivenStream::destroy() {
  return driver().cuStreamDestroy(std::exchange(stream_, nullptr));
}

}  // namespace cuvmm::test
