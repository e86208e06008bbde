// SPDX-License-Identifier: Apache-2.0
// Primary contexts, and access between the contexts of two devices. The whole process shares a
// device's primary context, so tests that end it run in a separate process.
#include <atomic>
#include <chrono>
#include <thread>

#include "streams_support.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

class PrimaryContexts : public DriverContract {};

struct State {
  unsigned flags = 99;
  int active = 99;
};
State state() {
  State found;
  EXPECT_CUDA(driver().cuDevicePrimaryCtxGetState(device(), &found.flags, &found.active));
  return found;
}

TEST_F(PrimaryContexts, RetainingAgainGivesTheSameContext) {
  CUcontext again = nullptr;
  ASSERT_CUDA(driver().cuDevicePrimaryCtxRetain(&again, device()));
  EXPECT_EQ(again, primary());
  EXPECT_EQ(state().active, 1);
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));
}

TEST_F(PrimaryContexts, TwoDevicesHaveTwo) {
  NEEDS_DEVICES(2);
  const PrimaryContext second{1};
  EXPECT_NE(second.get(), primary());
}

TEST_F(PrimaryContexts, AnUnknownDeviceIsRefused) {
  CUcontext context = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuDevicePrimaryCtxRetain(&context, 999));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuDevicePrimaryCtxRelease(999));
}

CHILD_ROLE(follows_the_state_of_a_primary_context) {
  GIVEN(driver().cuInit(0));
  EXPECT_EQ(state().active, 0);
  CUcontext context = nullptr;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  EXPECT_EQ(state().active, 1);
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));
  EXPECT_EQ(state().active, 1) << "retained twice, released once";
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));
  EXPECT_EQ(state().active, 0);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, driver().cuDevicePrimaryCtxRelease(device()));
}
TEST_F(PrimaryContexts, IsActiveWhileItIsRetained) {
  EXPECT_EQ(run_child("follows_the_state_of_a_primary_context"), 0);
}

CHILD_ROLE(attaches_to_a_primary_context) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  CUcontext attached = nullptr;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));

  EXPECT_CUDA(driver().cuCtxAttach(&attached, 0));
  EXPECT_EQ(attached, context);
  EXPECT_CUDA(driver().cuCtxDetach(context));
  EXPECT_CUDA(driver().cuCtxDetach(context));
  EXPECT_EQ(state().active, 1);

  EXPECT_CUDA(driver().cuCtxAttach(&attached, 0));
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));
  EXPECT_EQ(state().active, 0);
  EXPECT_ANSWER(CUDA_ERROR_CONTEXT_IS_DESTROYED, driver().cuCtxDetach(context));
}
TEST_F(PrimaryContexts, LivesByRetainsAlone) {
  EXPECT_EQ(run_child("attaches_to_a_primary_context"), 0);
}

CHILD_ROLE(loses_memory_with_the_last_release) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  GIVEN(driver().cuMemAlloc(&memory, 2 * MiB));
  GIVEN(driver().cuCtxSetCurrent(nullptr));

  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device()));

  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(memory));
}
TEST_F(PrimaryContexts, TheLastReleaseGivesItsMemoryBack) {
  EXPECT_EQ(run_child("loses_memory_with_the_last_release"), 0);
}

CHILD_ROLE(resets_a_primary_context) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  GIVEN(driver().cuMemAlloc(&memory, 2 * MiB));

  EXPECT_CUDA(driver().cuDevicePrimaryCtxReset(device()));

  EXPECT_EQ(state().active, 0);
  CUdeviceptr more = 0;
  EXPECT_NE(driver().cuMemAlloc(&more, 2 * MiB), CUDA_SUCCESS) << "the context is gone";
  GIVEN(driver().cuCtxSetCurrent(nullptr));
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(memory));
  EXPECT_CUDA(driver().cuMemAlloc(&memory, 2 * MiB)) << "and a new one works";
  EXPECT_CUDA(driver().cuMemFree(memory));
}
TEST_F(PrimaryContexts, AResetEndsItRegardlessOfHolders) {
  EXPECT_EQ(run_child("resets_a_primary_context"), 0);
}

// The handle is the same in both lives, so the new one must not end with the old one.
CHILD_ROLE(retains_while_the_last_use_ends) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::atomic<bool> runs{false};
  const auto take_a_while = [](void* flag) {
    static_cast<std::atomic<bool>*>(flag)->store(true);
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  };
  GIVEN(driver().cuLaunchHostFunc(stream, take_a_while, &runs));
  while (!runs) static_cast<void>(driver().cuStreamQuery(stream));

  std::thread releases{[] { EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device())); }};
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  releases.join();

  CUdeviceptr memory = 0;
  EXPECT_CUDA(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA(driver().cuMemAlloc(&memory, 2 * MiB));
  EXPECT_CUDA(driver().cuMemsetD8Async(memory, 1, 2 * MiB, stream));
  EXPECT_CUDA(driver().cuStreamSynchronize(stream));
}
TEST_F(PrimaryContexts, RetainedWhileItEndsBeginsAnew) {
  EXPECT_EQ(run_child("retains_while_the_last_use_ends"), 0);
}

CHILD_ROLE(compares_the_ids_of_two_lives) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  CUcontext next = nullptr;
  unsigned long long id = 0;
  unsigned long long id_of_next = 0;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxGetId(context, &id));
  GIVEN(driver().cuDevicePrimaryCtxRelease(device()));

  GIVEN(driver().cuDevicePrimaryCtxRetain(&next, device()));

  EXPECT_CUDA(driver().cuCtxGetId(next, &id_of_next));
  EXPECT_NE(id_of_next, id);
}
TEST_F(PrimaryContexts, HasAnotherIdAfterItsEnd) {
  NEEDS_CALL(cuCtxGetId);
  EXPECT_EQ(run_child("compares_the_ids_of_two_lives"), 0);
}

CHILD_ROLE(keeps_virtual_memory_beyond_its_context) {
  GIVEN(driver().cuInit(0));
  CUcontext context = nullptr;
  GIVEN(driver().cuDevicePrimaryCtxRetain(&context, device()));
  GIVEN(driver().cuCtxSetCurrent(context));
  const Size granule = granularity();
  const CUmemAllocationProp properties = chunk_properties();
  CUmemGenericAllocationHandle chunk = 0;
  GIVEN(driver().cuMemCreate(&chunk, granule, &properties, 0));

  EXPECT_CUDA(driver().cuDevicePrimaryCtxReset(device()));

  EXPECT_CUDA(driver().cuMemRelease(chunk)) << "measured: such memory stays ours to release";
}
TEST_F(PrimaryContexts, VirtualMemoryOutlivesTheContext) {
  EXPECT_EQ(run_child("keeps_virtual_memory_beyond_its_context"), 0);
}

CHILD_ROLE(sets_flags_of_an_inactive_context) {
  GIVEN(driver().cuInit(0));
  EXPECT_CUDA(driver().cuDevicePrimaryCtxSetFlags(device(), CU_CTX_SCHED_BLOCKING_SYNC));
  EXPECT_EQ(state().flags & CU_CTX_SCHED_MASK, static_cast<unsigned>(CU_CTX_SCHED_BLOCKING_SYNC));
  EXPECT_EQ(state().active, 0);
}
TEST_F(PrimaryContexts, FlagsMayBeSetBeforeItIsActive) {
  EXPECT_EQ(run_child("sets_flags_of_an_inactive_context"), 0);
}

TEST_F(PrimaryContexts, ADeviceIsNoPeerOfItself) {
  const OwnContext other;
  EXPECT_ANSWER(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver().cuCtxEnablePeerAccess(primary(), 0));
}

class PeerAccess : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_DEVICES(2);
    int may = 0;
    GIVEN(driver().cuDeviceCanAccessPeer(&may, device(0), device(1)));
    if (may == 0) GTEST_SKIP() << "the devices cannot reach each other";
  }
};

TEST_F(PeerAccess, IsEnabledOnceAndDisabledOnce) {
  CUcontext there = nullptr;
  ASSERT_CUDA(driver().cuDevicePrimaryCtxRetain(&there, device(1)));

  EXPECT_CUDA(driver().cuCtxEnablePeerAccess(there, 0));
  EXPECT_ANSWER(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, driver().cuCtxEnablePeerAccess(there, 0));
  EXPECT_CUDA(driver().cuCtxDisablePeerAccess(there));
  EXPECT_ANSWER(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver().cuCtxDisablePeerAccess(there));

  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device(1)));
}

TEST_F(PeerAccess, LetsAKernelReadBlockingMemoryOfTheOther) {
  const GivenBlocking here{4 * KiB};
  const Kernels& all = kernels();
  const PrimaryContext there{1};
  const GivenBlocking memory_there{4 * KiB};
  fill_pattern(memory_there.address(), 4 * KiB, 3);
  const Current back{primary()};
  ASSERT_CUDA(driver().cuCtxEnablePeerAccess(there.get(), 0));

  EXPECT_CUDA(launch(all.copy_words, default_stream, here.address(), memory_there.address(),
                     std::uint32_t{1024}));
  EXPECT_CUDA(synchronize());

  expect_pattern(here.address(), 4 * KiB, 3);
  EXPECT_CUDA(driver().cuCtxDisablePeerAccess(there.get()));
}

TEST_F(PeerAccess, FlagsMustBeZero) {
  CUcontext there = nullptr;
  ASSERT_CUDA(driver().cuDevicePrimaryCtxRetain(&there, device(1)));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuCtxEnablePeerAccess(there, 1));
  EXPECT_CUDA(driver().cuDevicePrimaryCtxRelease(device(1)));
}

}  // namespace
}  // namespace cuvmm::test
