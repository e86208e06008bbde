// SPDX-License-Identifier: Apache-2.0
// VMM_RESIZE=elide: a block may be allocated on the promise of another block's memory. The next
// call that could notice decides what becomes of the promise.
#include <atomic>
#include <chrono>
#include <thread>

#include "hook_sim/told.hpp"
#include "resize/world.hpp"

namespace cuvmm::test {
namespace {

constexpr Size device_memory = 128 * MiB;  // as in main.cpp

class Promise : public ResizeTest {
 protected:
  void SetUp() override {
    ResizeTest::SetUp();
    if (!promises()) GTEST_SKIP() << "promises are for VMM_RESIZE=elide";
    Engine::get()->serving()->memory.make_room();  // drops the cache that earlier tests left
  }
  static Size percent(Size share) { return round_down(device_memory * share / 100, granule); }
  static Size physical() {
    cuvmm_sim_counters counters{};
    sim()->read_counters(0, &counters);
    return counters.physical_bytes;
  }
};

// Natively this needs 150% of the card.
TEST_F(Promise, AGrowFromMoreThanHalfOfTheCardToNearlyAll) {
  const CUdeviceptr a = given_filled(percent(60), 1);
  CUdeviceptr b = 0;
  ASSERT_DONE(through_door<Call::cuMemAlloc_v2>(&b, std::size_t{percent(90)}));
  EXPECT_LE(physical(), percent(90) + 4 * granule);
  ASSERT_DONE(copy(b, a, percent(60)));
  EXPECT_LE(physical(), percent(90) + 4 * granule);
  ASSERT_DONE(free(a));
  EXPECT_EQ(elided(), 1U) << why_run();
  EXPECT_LE(physical(), percent(90) + 4 * granule);
  expect_filled(b, percent(60), 1);
  fill(b, percent(90), 2);
  expect_filled(b, percent(90), 2);
  EXPECT_DONE(free(b));
}

TEST_F(Promise, IsKeptFromFreeMemory) {
  const CUdeviceptr a = given_filled(8 * MiB, 1);
  const CUdeviceptr b = given_block(16 * MiB);
  fill(b, 16 * MiB, 2);
  expect_filled(a, 8 * MiB, 1);
  expect_filled(b, 16 * MiB, 2);
  EXPECT_DONE(free(a));
  EXPECT_DONE(free(b));
}

// What a block is granted decides whether it is promised memory, not what was asked for.
TEST_F(Promise, IsKeptForABlockThatOnlyItsRoundingMakesLargeEnough) {
  const CUdeviceptr a = given_filled(8 * granule, 1);
  for (const Size less : {Size{1}, Size{511}, Size{512}}) {
    const Size size = 8 * granule - less;
    const CUdeviceptr b = given_block(size);
    EXPECT_DONE(
        through_door<Call::cuMemsetD8_v2>(b, static_cast<unsigned char>(3), std::size_t{size}));
    EXPECT_DONE(free(b));
  }
  expect_filled(a, 8 * granule, 1);
  EXPECT_DONE(free(a));
}

TEST_F(Promise, IsKeptIfTheCopyRuns) {
  const CUdeviceptr a = given_filled(8 * MiB, 1);
  const CUdeviceptr b = given_put_off(a, 8 * MiB, 16 * MiB);
  expect_filled(b, 8 * MiB, 1);
  expect_filled(a, 8 * MiB, 1);
  EXPECT_EQ(run(WhyRun::NextCall), 1U) << why_run();
  EXPECT_DONE(free(a));
  EXPECT_DONE(free(b));
}

// The next operation gets the error, and the old block is unchanged.
TEST_F(Promise, FailsWithOutOfMemoryIfItCannotBeKept) {
  const CUdeviceptr a = given_filled(percent(60), 1);
  const CUdeviceptr b = given_block(percent(90));
  EXPECT_EQ(through_door<Call::cuMemsetD8_v2>(b, static_cast<unsigned char>(1), std::size_t{64}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(free(b));
  EXPECT_FALSE(is_pending());
  expect_filled(a, percent(60), 1);
  EXPECT_DONE(free(a));
}

TEST_F(Promise, OfADeferredCopyFailsWithOutOfMemoryIfItCannotBeKept) {
  const CUdeviceptr a = given_filled(percent(60), 1);
  const CUdeviceptr b = given_put_off(a, percent(60), percent(90));
  std::uint32_t word = 0;
  EXPECT_EQ(
      through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(&word), b, std::size_t{sizeof word}),
      CUDA_ERROR_OUT_OF_MEMORY);
  // A wait needs no memory, and the free still completes the pattern.
  EXPECT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_DONE(free(a));
  EXPECT_EQ(elided(), 1U) << why_run();
  expect_filled(b, percent(60), 1);
  EXPECT_DONE(free(b));
}

// Both were promised the same memory, before either promise was known to the other thread.
TEST_F(Promise, ToTwoThreadsAtOnceIsKeptToBoth) {
  for (Size round = 0; round < 20; ++round) {
    const CUdeviceptr a = given_filled(4 * MiB, 1);
    const Size grown = (5 + round) * MiB;
    std::atomic<int> ready{0};
    CUdeviceptr given[2] = {};
    std::vector<std::thread> threads;
    for (CUdeviceptr& mine : given) {
      threads.emplace_back([&] {
        through_door<Call::cuCtxSetCurrent>(context_);
        ++ready;
        while (ready < 2) {
        }
        EXPECT_DONE(through_door<Call::cuMemAlloc_v2>(&mine, std::size_t{grown}));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const CUdeviceptr mine : given) {
      ASSERT_DONE(through_door<Call::cuMemsetD8_v2>(mine, static_cast<unsigned char>(3),
                                                    std::size_t{grown}));
      EXPECT_DONE(free(mine));
    }
    expect_filled(a, 4 * MiB, 1);
    EXPECT_DONE(free(a));
    EXPECT_FALSE(is_pending());
  }
}

class PromiseOfFreedBlock : public Promise {
 protected:
  // Fails the wait, which an allocation makes once something has been captured.
  static constexpr const char* refusal =
      "cuCtxSynchronize:1=CUDA_ERROR_UNKNOWN,cuMemAlloc:1=CUDA_ERROR_UNKNOWN";
  void expect_refused_free(CUdeviceptr b) {
    ASSERT_EQ(sim()->set_faults(refusal), 0);
    EXPECT_EQ(free(b), CUDA_ERROR_UNKNOWN);
    sim()->set_faults(nullptr);
  }
};

TEST_F(PromiseOfFreedBlock, IsKeptIfTheFreeIsRefused) {
  const CUdeviceptr a = given_filled(8 * MiB, 1);
  const CUdeviceptr b = given_block(16 * MiB);
  expect_refused_free(b);
  EXPECT_TRUE(is_pending());
  fill(b, 16 * MiB, 2);
  expect_filled(b, 16 * MiB, 2);
  expect_filled(a, 8 * MiB, 1);
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(a));
}

TEST_F(PromiseOfFreedBlock, IsKeptWithItsCopyIfTheFreeIsRefused) {
  const CUdeviceptr a = given_filled(8 * MiB, 1);
  const CUdeviceptr b = given_put_off(a, 8 * MiB, 16 * MiB);
  expect_refused_free(b);
  expect_filled(b, 8 * MiB, 1);
  expect_filled(a, 8 * MiB, 1);
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(a));
}

// A promise without memory to keep it, beside memory that only a stream can free.
class PromiseBesidePooledMemory : public Promise {
 protected:
  void SetUp() override {
    Promise::SetUp();
    if (!promises()) return;
    a_ = given_filled(percent(30), 1);
    ASSERT_DONE(
        through_door<Call::cuMemAllocAsync>(&pooled_, std::size_t{percent(45)}, CUstream{}));
    ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
    b_ = given_block(percent(45));
  }
  static CUresult free_ordered(CUdeviceptr address) {
    return through_door<Call::cuMemFreeAsync>(address, CUstream{});
  }
  CUdeviceptr a_ = 0;
  CUdeviceptr b_ = 0;
  CUdeviceptr pooled_ = 0;
};

TEST_F(PromiseBesidePooledMemory, AStreamOrderedFreeMakesTheRoom) {
  EXPECT_DONE(free_ordered(pooled_));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  fill(b_, percent(45), 2);
  expect_filled(b_, percent(45), 2);
  expect_filled(a_, percent(30), 1);
  EXPECT_DONE(free(b_));
  EXPECT_DONE(free(a_));
}

TEST_F(PromiseBesidePooledMemory, AStreamOrderedFreeOfTheNewBlockEndsIt) {
  EXPECT_DONE(free_ordered(b_));
  EXPECT_FALSE(is_pending());
  EXPECT_DONE(free_ordered(pooled_));
  expect_filled(a_, percent(30), 1);
  EXPECT_DONE(free(a_));
}

TEST_F(PromiseBesidePooledMemory, AStreamOrderedFreeOfTheOldBlockWaitsForItsCopy) {
  ASSERT_DONE(copy(b_, a_, percent(30)));
  ASSERT_TRUE(is_pending()) << why_run();
  EXPECT_EQ(free_ordered(a_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(free_ordered(pooled_));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_DONE(free_ordered(a_));
  expect_filled(b_, percent(30), 1);
  EXPECT_DONE(free(b_));
}

// The old block is gone for the program, but work that the device may not have done yet uses it.
TEST_F(Promise, IsKeptOnceAPendingFreeIsDone) {
  for (const bool is_copied : {false, true}) {
    const GivenStream stream;
    const CUdeviceptr a = given_filled(percent(25), 1);
    const CUdeviceptr freed = given_block(percent(31));
    ASSERT_DONE(through_door<Call::cuMemsetD8Async>(freed, static_cast<unsigned char>(1),
                                                    std::size_t{percent(31)}, stream.get()));
    ASSERT_DONE(through_door<Call::cuMemFreeAsync>(freed, stream.get()));
    const CUdeviceptr b = given_block(percent(50));
    EXPECT_TRUE(is_pending());
    if (is_copied) {
      EXPECT_DONE(copy(b, a, percent(25)));
      expect_filled(b, percent(25), 1);
    } else {
      EXPECT_DONE(through_door<Call::cuMemsetD8Async>(a, static_cast<unsigned char>(2),
                                                      std::size_t{percent(25)}, stream.get()));
    }
    EXPECT_FALSE(is_pending());
    fill(b, percent(50), 3);
    expect_filled(b, percent(50), 3);
    EXPECT_DONE(free(a));
    EXPECT_DONE(free(b));
  }
}

// A copy without memory for it, behind a wait that succeeded.
class PromisedToAStream : public Promise {
 protected:
  void SetUp() override {
    Promise::SetUp();
    if (!promises()) return;
    ASSERT_DONE(through_door<Call::cuStreamCreate>(&stream_, unsigned{CU_STREAM_NON_BLOCKING}));
    a_ = given_filled(percent(30), 1);
    rest_ = given_block(percent(50));
    b_ = given_block(percent(40));
    ASSERT_DONE(
        through_door<Call::cuMemcpyDtoDAsync_v2>(b_, a_, std::size_t{percent(30)}, stream_));
    ASSERT_DONE(through_door<Call::cuStreamSynchronize>(stream_));
    ASSERT_TRUE(is_pending()) << why_run();
  }
  void TearDown() override {
    if (promises()) {
      EXPECT_DONE(free(a_));
      EXPECT_DONE(free(b_));
    }
    Promise::TearDown();
  }
  CUstream stream_ = nullptr;
  CUdeviceptr a_ = 0;
  CUdeviceptr b_ = 0;
  CUdeviceptr rest_ = 0;
};

TEST_F(PromisedToAStream, TheCopyIsMadeAfterTheStreamsEnd) {
  ASSERT_DONE(through_door<Call::cuStreamDestroy_v2>(stream_));
  EXPECT_TRUE(is_pending());
  ASSERT_DONE(free(rest_));
  expect_filled(b_, percent(30), 1);
  expect_filled(a_, percent(30), 1);
}

// The copy comes before work of other streams, since the program has waited for it.
TEST_F(PromisedToAStream, TheCopyIsDoneForTheStreamWaitedFor) {
  ASSERT_DONE(free(rest_));
  const CUdeviceptr read = given_block(percent(30));
  const GivenStream other;
  ASSERT_DONE(
      through_door<Call::cuMemcpyDtoDAsync_v2>(read, b_, std::size_t{percent(30)}, other.get()));
  ASSERT_DONE(through_door<Call::cuStreamSynchronize>(other.get()));
  expect_filled(read, percent(30), 1);
  EXPECT_DONE(free(read));
  EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(stream_));
}

// A stream that nobody has waited for may itself be waiting for the very thread that calls cuvmm.
TEST_F(Promise, OfACopyBehindRunningWorkIsKeptWithoutAWait) {
  const GivenStream first;
  const GivenStream second;
  const CUdeviceptr a = given_filled(percent(30), 1);
  const CUdeviceptr other = given_filled(granule, 50);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle rest = 0;
  ASSERT_DONE(through_door<Call::cuMemCreate>(&rest, std::size_t{percent(50)}, &properties, 0ull));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  HostFlag flag;
  ASSERT_DONE(
      launch_through_door(kernels_->wait_for_flag, first.get(), std::uint64_t{flag.address()}));
  const CUdeviceptr b = given_block(percent(40));
  ASSERT_DONE(
      through_door<Call::cuMemcpyDtoDAsync_v2>(b, a, std::size_t{percent(30)}, first.get()));
  ASSERT_TRUE(is_pending()) << why_run();
  EXPECT_EQ(through_door<Call::cuStreamQuery>(first.get()), CUDA_ERROR_NOT_READY);
  ASSERT_DONE(through_door<Call::cuMemRelease>(rest));
  EXPECT_DONE(through_door<Call::cuMemsetD8Async>(other, static_cast<unsigned char>(1),
                                                  std::size_t{64}, second.get()));
  EXPECT_FALSE(flag.given_up_on()) << "waited for what waits for this thread";
  flag.set();
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  EXPECT_FALSE(flag.given_up_on());
  expect_filled(b, percent(30), 1);
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(a));
}

// The end of a stream waits for the work before the copy. Another thread may have to end that work.
TEST_F(Promise, OfACopyOnAnEndingStreamDoesNotHoldOtherThreads) {
  CUstream ending = nullptr;
  ASSERT_DONE(through_door<Call::cuStreamCreate>(&ending, unsigned{CU_STREAM_NON_BLOCKING}));
  const GivenStream other;
  const CUdeviceptr a = given_filled(percent(30), 1);
  const CUdeviceptr rest = given_block(percent(50));
  ASSERT_DONE(through_door<Call::cuCtxSynchronize>());
  HostFlag flag;
  ASSERT_DONE(launch_through_door(kernels_->wait_for_flag, ending, std::uint64_t{flag.address()}));
  const CUdeviceptr b = given_block(percent(40));
  ASSERT_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(b, a, std::size_t{percent(30)}, ending));
  ASSERT_TRUE(is_pending()) << why_run();
  CUcontext context = nullptr;
  ASSERT_DONE(through_door<Call::cuCtxGetCurrent>(&context));
  std::atomic<bool> begins{false};
  std::thread ends{[&] {
    EXPECT_DONE(through_door<Call::cuCtxSetCurrent>(context));
    begins = true;
    EXPECT_DONE(through_door<Call::cuStreamDestroy_v2>(ending));
  }};
  while (!begins) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_DONE(through_door<Call::cuStreamQuery>(other.get()));
  EXPECT_FALSE(flag.given_up_on()) << "waited for what waits for this thread";
  flag.set();
  ends.join();
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(free(rest));
  expect_filled(b, percent(30), 1);
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(a));
}

TEST_F(Promise, QueriesAnswerDeviceMemory) {
  const CUdeviceptr a = given_filled(percent(60), 1);
  const CUdeviceptr b = given_block(percent(90));
  expect_to_be_told_of_device_memory(b);
  EXPECT_TRUE(is_pending());
  EXPECT_DONE(free(b));
  EXPECT_DONE(free(a));
}

TEST_F(Promise, OfAFreedBlockLeavesNothingBehind) {
  const CUdeviceptr a = given_filled(percent(60), 1);
  const CUdeviceptr b = given_block(percent(90));
  EXPECT_DONE(free(b));
  EXPECT_FALSE(is_pending());
  expect_filled(a, percent(60), 1);
  EXPECT_DONE(free(a));
  const CUdeviceptr all = given_filled(percent(90), 3);
  expect_filled(all, percent(90), 3);
  EXPECT_DONE(free(all));
}

// Without promises, `auto` fails at once as the driver would: a program that handles the failure
// must see it.
TEST_F(ResizeTest, WithoutPromisesAnAllocationThatDoesNotFitFails) {
  if (promises()) GTEST_SKIP() << "they are made here";
  const CUdeviceptr a = given_block(device_memory / 10 * 6);
  CUdeviceptr b = 0;
  EXPECT_EQ(through_door<Call::cuMemAlloc_v2>(&b, std::size_t{device_memory / 10 * 9}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_DONE(free(a));
}

}  // namespace
}  // namespace cuvmm::test
