// SPDX-License-Identifier: Apache-2.0
// Kernels with the same meaning on a card (PTX) and in the simulation (host functions,
// kernels.cpp).
#pragma once

#include <cstdint>

#include "support/driver_under_test.hpp"

namespace cuvmm::test {

// PTX of all kernels below.
const char* kernels_ptx();

// The by-value parameter of many_parameters.
struct ThreeWords {
  std::uint64_t first, second, third;
};

// The test kernels, loaded into the current context.
class Kernels {
 public:
  Kernels();
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  CUmodule module() const { return module_; }

  // A grid of any shape does all the work: threads stride over the words.
  CUfunction fill;        // (u64 address, u32 value, u32 words)
  CUfunction copy_words;  // (u64 to, u64 from, u32 words)
  CUfunction add_one;     // (u64 address, u32 words)
  CUfunction sum;         // (u64 out, u64 in, u32 words): adds all words to the 32-bit word at out
  CUfunction spin;        // (u64 nanoseconds)
  // (u64 address): runs until the 32-bit word there is not 0. Gives up after some seconds, so that
  // a wrong test fails rather than hangs, and reports that in the next word.
  CUfunction wait_for_flag;
  // (u8, u16, u32, u64, ThreeWords, u64 out): writes its parameters to out, as seven 64-bit words.
  CUfunction many_parameters;

 private:
  CUmodule module_ = nullptr;
};

inline constexpr std::uint64_t wait_for_flag_gives_up_after_nanoseconds = 20'000'000'000;

struct Shape {
  unsigned grid = 4;
  unsigned block = 128;
};

// Parameters must have exactly the kernel's types: std::uint32_t for a u32.
template <class... Parameters>
CUresult launch(CUfunction function, CUstream stream, Shape shape, Parameters... parameters) {
  void* pointers[] = {&parameters..., nullptr};
  return driver().cuLaunchKernel(function, shape.grid, 1, 1, shape.block, 1, 1, 0, stream, pointers,
                                 nullptr);
}

template <class... Parameters>
CUresult launch(CUfunction function, CUstream stream, Parameters... parameters) {
  return launch(function, stream, Shape{}, parameters...);
}

// A word in host memory that kernels can access.
class HostFlag {
 public:
  HostFlag();
  ~HostFlag();
  HostFlag(const HostFlag&) = delete;
  HostFlag& operator=(const HostFlag&) = delete;

  CUdeviceptr address() const { return address_; }
  void set(std::uint32_t value = 1) { __atomic_store_n(words_, value, __ATOMIC_RELEASE); }
  std::uint32_t get() const { return __atomic_load_n(words_, __ATOMIC_ACQUIRE); }
  bool given_up_on() const { return __atomic_load_n(words_ + 1, __ATOMIC_ACQUIRE) != 0; }

 private:
  std::uint32_t* words_ = nullptr;
  CUdeviceptr address_ = 0;
};

// Work that runs on a stream until it is told to end: exact, where a timed kernel would be a guess.
// Ended and waited for at the end of the scope; the stream must live until then.
class SlowWork {
 public:
  SlowWork(const Kernels& kernels, CUstream stream);
  ~SlowWork();
  SlowWork(const SlowWork&) = delete;
  SlowWork& operator=(const SlowWork&) = delete;

  void end() { flag_.set(); }

 private:
  HostFlag flag_;
  CUstream stream_;
};

// A stream for the length of the scope.
class GivenStream {
 public:
  explicit GivenStream(unsigned flags = CU_STREAM_NON_BLOCKING);
  ~GivenStream();
  GivenStream(const GivenStream&) = delete;
  GivenStream& operator=(const GivenStream&) = delete;
  CUstream get() const { return stream_; }
  operator CUstream() const { return stream_; }
  CUresult destroy();

 private:
  CUstream stream_ = nullptr;
};

}  // namespace cuvmm::test
