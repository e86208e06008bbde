// SPDX-License-Identifier: Apache-2.0
// Copies that cuvmm makes in the context that owns the memory, because the driver refuses them in
// the program's context. What happens if the driver refuses a step of that.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "hook_sim/on_primary_context.hpp"
#include "hook_sim/simulated.hpp"

namespace cuvmm::test {
namespace {

constexpr std::size_t bytes_copied = 4096;

// Both blocks lie on device 0; device 1 is current.
class CopiesAcrossDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    open_driver();
    ASSERT_DONE(through_door<Call::cuInit>(0u));
    int devices = 0;
    ASSERT_DONE(through_door<Call::cuDeviceGetCount>(&devices));
    if (devices < 2) GTEST_SKIP() << "needs two devices";
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&owner_, 0));
    ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 1));
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(owner_));
    from_ = given_memory(7);
    to_ = given_memory(5);
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream_,
                                                   static_cast<unsigned>(CU_STREAM_NON_BLOCKING)));
  }
  void TearDown() override {
    if (owner_ == nullptr) return;
    fail_calls("");
    EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(1));
    EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
  }

  static CUdeviceptr given_memory(unsigned value) {
    CUdeviceptr memory = 0;
    EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&memory, bytes_copied));
    EXPECT_DONE(through_door<Call::cuMemsetD32_v2>(memory, value, bytes_copied / 4));
    EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
    return memory;
  }
  CUresult copy() {
    return through_door<Call::cuMemcpyDtoDAsync_v2>(to_, from_, bytes_copied, stream_);
  }
  // Not ordered behind the copy.
  unsigned first_word() const {
    unsigned word = 0;
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(owner_));
    EXPECT_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), to_, sizeof word));
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
    return word;
  }
  void synchronize() const {
    for (const CUcontext context : {owner_, context_}) {
      EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context));
      EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
    }
  }

  CUcontext owner_ = nullptr;
  CUcontext context_ = nullptr;
  CUdeviceptr from_ = 0;
  CUdeviceptr to_ = 0;
  CUstream stream_ = nullptr;
};

TEST_F(CopiesAcrossDevices, ARefusedOneIsNotInFlightAfterTheCall) {
  EXPECT_DONE(copy());
  synchronize();
  EXPECT_EQ(first_word(), 7U);
  for (const char* step :
       {"cuEventCreate:1", "cuEventRecord:1", "cuStreamCreate:1", "cuEventCreate:2",
        "cuStreamWaitEvent:1", "cuMemcpyAsync:1", "cuEventRecord:2", "cuStreamWaitEvent:2"}) {
    ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(owner_));
    EXPECT_DONE(through_door<Call::cuMemsetD32_v2>(to_, 5u, bytes_copied / 4));
    synchronize();
    std::atomic<bool> may_end{false};
    EXPECT_DONE(
        through_door<Call::cuLaunchHostFunc>(stream_, until_it_may, static_cast<void*>(&may_end)));
    std::jthread ends{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      may_end = true;
    }};
    fail_calls(std::string(step) + "=CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(copy(), CUDA_ERROR_OUT_OF_MEMORY) << step;
    fail_calls("");
    const unsigned found = first_word();
    ends.join();
    synchronize();
    EXPECT_EQ(first_word(), found) << step;
  }
}

}  // namespace
}  // namespace cuvmm::test
