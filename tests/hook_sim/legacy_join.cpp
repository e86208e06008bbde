// SPDX-License-Identifier: Apache-2.0
// Copies on the legacy stream that name another context's memory: which driver calls they make, and
// what the program gets if the driver refuses them.
#include <gtest/gtest.h>

#include <string>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/simulated.hpp"

namespace cuvmm::test {
namespace {

std::uint64_t calls_of(const char* name) {
  return of_simulated_driver<std::uint64_t(const char*)>("cuvmm_sim_calls")(name);
}
std::uint64_t left() {
  return of_simulated_driver<std::uint64_t(char*, std::uint64_t)>("cuvmm_sim_leaks")(nullptr, 0);
}

class JoinedLegacyStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
    ASSERT_DONE(through_door<Call::cuCtxCreate_v2>(&other_, 0u, CUdevice{0}));
    if (Engine::get()->serving() == nullptr) GTEST_SKIP() << "nothing is served";
    others_ = given_memory();
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    own_ = given_memory();
    EXPECT_EQ(copy(others_), CUDA_SUCCESS);  // creates what the engine keeps from the first copy on
  }
  void TearDown() override {
    fail_calls("");
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    EXPECT_DONE(through_door<Call::cuCtxDestroy_v2>(other_));
    EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  }

  static CUdeviceptr given_memory() {
    CUdeviceptr memory = 0;
    EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, std::size_t{64 * KiB}));
    EXPECT_DONE(through_door<Call::cuMemsetD32_v2>(memory, 7u, std::size_t{16}));
    EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
    return memory;
  }
  CUresult copy(CUdeviceptr from) {
    word_ = 0;
    return through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word_), from, sizeof word_);
  }

  CUcontext context_ = nullptr;
  CUcontext other_ = nullptr;
  CUdeviceptr own_ = 0;
  CUdeviceptr others_ = 0;
  std::uint32_t word_ = 0;
};

TEST_F(JoinedLegacyStreams, ACopyWithinItsOwnContextMakesNoExtraCalls) {
  const std::uint64_t before = calls_of("cuEventRecord");
  EXPECT_DONE(copy(own_));
  EXPECT_EQ(calls_of("cuEventRecord"), before);
  EXPECT_DONE(copy(others_));
  EXPECT_EQ(calls_of("cuEventRecord"), before + 2);
}

TEST_F(JoinedLegacyStreams, ARefusedStepIsReportedAndLeavesNothingBehind) {
  for (const char* step : {"cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"}) {
    for (const int time : {1, 2}) {
      const std::uint64_t before = left();
      fail_calls(std::string(step) + ":" + std::to_string(time) + "=CUDA_ERROR_OUT_OF_MEMORY");
      EXPECT_EQ(copy(others_), CUDA_ERROR_OUT_OF_MEMORY) << step << ", time " << time;
      fail_calls("");
      EXPECT_EQ(left(), before) << step << ", time " << time;
      EXPECT_DONE(copy(others_));
      EXPECT_EQ(word_, 7U);
    }
  }
}

}  // namespace
}  // namespace cuvmm::test
