// SPDX-License-Identifier: Apache-2.0
// A program that vacates its own devices, through the C and the C++ API.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "library/driver_calls.hpp"
#include "library/surroundings.hpp"

namespace cuvmm::test {
namespace {

constexpr std::chrono::microseconds timeout{60'000'000};

bool is_served() {
  const char* const mode = std::getenv("VMM_MODE");
  return is_preloaded() && (mode == nullptr || std::string{mode} == "VMM");
}

TEST(LibraryPause, NeedsThePreloadLibrary) {
  if (is_preloaded()) GTEST_SKIP() << "it is there";
  EXPECT_EQ(cuvmm_pause(1000, 0, nullptr, nullptr), CUVMM_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuvmm_resume(0, nullptr, nullptr), CUVMM_ERROR_NOT_SUPPORTED);
  EXPECT_FALSE(away_info().ok());
}

TEST(LibraryPause, PutsEverythingBackWhereItWas) {
  if (!is_served()) GTEST_SKIP() << "needs the preload library, in VMM mode";
  CUcontext context = nullptr;
  ASSERT_EQ(CALL(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(CALL(cuMemAlloc)(&address, 6 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(CALL(cuMemsetD32)(address, 41, 6 * MiB / 4), CUDA_SUCCESS);

  const auto paused = pause(timeout);
  ASSERT_TRUE(paused.ok()) << paused.error().message();
  EXPECT_GE(paused->moved, 6 * MiB);
  const auto away = away_info();
  ASSERT_TRUE(away.ok());
  EXPECT_EQ(away->is_paused, 1u);
  EXPECT_EQ(away->paused_bytes, paused->moved);
  EXPECT_EQ(device_info(0)->physical_in_use, 0u);
  const auto again = pause(timeout);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->moved, paused->moved);

  const auto resumed = resume();
  ASSERT_TRUE(resumed.ok()) << resumed.error().message();
  EXPECT_EQ(resumed->moved, paused->moved);
  EXPECT_EQ(away_info()->is_paused, 0u);
  std::vector<std::uint32_t> words(6 * MiB / 4);
  ASSERT_EQ(CALL(cuMemcpyDtoH)(words.data(), address, 6 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(words, std::vector<std::uint32_t>(6 * MiB / 4, 41));
  EXPECT_EQ(CALL(cuMemFree)(address), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuDevicePrimaryCtxRelease)(0), CUDA_SUCCESS);
}

TEST(LibraryPause, RefusesInvalidArguments) {
  if (!is_served()) GTEST_SKIP() << "needs the preload library, in VMM mode";
  cuvmm_pause_report report;
  std::memset(&report, 0x5a, sizeof report);
  EXPECT_EQ(cuvmm_pause(1000, 8, &report, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_resume(8, &report, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(report.moved, 0x5a5a5a5a5a5a5a5aull);
  EXPECT_EQ(cuvmm_get_away_info(nullptr, nullptr), CUVMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cuvmm_resume(0, nullptr, nullptr), CUVMM_OK) << "nothing is paused";
}

}  // namespace
}  // namespace cuvmm::test
