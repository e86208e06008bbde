// SPDX-License-Identifier: Apache-2.0
// A program that resizes its memory, through the doors and over the simulated driver.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hook_sim/doors.hpp"
#include "support/child.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {

inline constexpr Size granule = 32 * KiB;
inline constexpr Size block = 4 * MiB;  // many granules: mapping wins

#define EXPECT_DONE(...) EXPECT_EQ((__VA_ARGS__), CUDA_SUCCESS)
#define ASSERT_DONE(...) ASSERT_EQ((__VA_ARGS__), CUDA_SUCCESS)

bool promises();  // VMM_RESIZE=elide

// Makes the context of device 0 current, and loads the kernels in it.
class ResizeTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static Resizer& resizer() { return *Engine::get()->serving()->resizer(); }
  ResizeCounters counters() const { return resizer().counters(); }
  std::uint64_t elided() const { return counters().elided - before_.elided; }
  Size elided_bytes() const { return counters().elided_bytes - before_.elided_bytes; }
  std::uint64_t deferred() const { return counters().deferred - before_.deferred; }
  std::uint64_t run(WhyRun why) const {
    const auto at = static_cast<std::size_t>(why);
    return counters().run[at] - before_.run[at];
  }
  std::string why_run() const;
  static bool is_pending() { return resizer().is_pending(); }

  CUdeviceptr given_block(Size size);
  // A block filled with a pattern unique to the seed.
  CUdeviceptr given_filled(Size size, std::uint32_t seed);
  // A block of `larger` bytes with a deferred copy of `size` bytes from `from` to it.
  CUdeviceptr given_put_off(CUdeviceptr from, Size size, Size larger);
  static void fill(CUdeviceptr address, Size size, std::uint32_t seed);
  static void expect_filled(CUdeviceptr address, Size size, std::uint32_t seed, Size from = 0);
  static CUresult free(CUdeviceptr address) { return through_door<Call::cuMemFree_v2>(address); }
  static CUresult copy(CUdeviceptr to, CUdeviceptr from, Size size) {
    return through_door<Call::cuMemcpyDtoD_v2>(to, from, size);
  }
  static void expect_true_books();

  CUcontext context_ = nullptr;
  std::unique_ptr<Kernels> kernels_;

 private:
  ResizeCounters before_;
};

// Launches through the door.
template <class... Parameters>
CUresult launch_through_door(CUfunction function, CUstream stream, Parameters... parameters) {
  void* pointers[] = {&parameters..., nullptr};
  return through_door<Call::cuLaunchKernel>(function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                                            static_cast<void**>(pointers),
                                            static_cast<void**>(nullptr));
}

}  // namespace cuvmm::test
