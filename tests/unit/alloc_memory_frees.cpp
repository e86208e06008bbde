// SPDX-License-Identifier: Apache-2.0
// What a blocking free refuses, and what it waits for.
#include <atomic>
#include <thread>
#include <vector>

#include "alloc_memory_world.hpp"
#include "base/clock.hpp"
#include "support/kernels.hpp"
#include "unit/stream_clock_support.hpp"

namespace cuvmm::test {
namespace {

constexpr Size large = 8 * MiB;

// Leaves the driver not a byte to allocate.
class FullCard {
 public:
  FullCard() {
    for (Size size = 64 * GiB; size != 0; size /= 2) {
      CUdeviceptr block = 0;
      while (driver().cuMemAlloc(&block, size) == CUDA_SUCCESS) blocks_.push_back(block);
    }
  }
  ~FullCard() {
    for (const CUdeviceptr block : blocks_) EXPECT_CUDA(driver().cuMemFree(block));
  }
  FullCard(const FullCard&) = delete;
  FullCard& operator=(const FullCard&) = delete;

 private:
  std::vector<CUdeviceptr> blocks_;
};

TEST_F(MemoryTest, AFreeOfAnInnerOrFreedAddressIsRefused) {
  const CUdeviceptr address = given(large);
  EXPECT_EQ(memory().free(address + 512), Answer{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free(address), std::nullopt) << "the driver refuses what it never gave";
}

TEST_F(MemoryTest, AnAllocationMayWaitForAFreeOnAnotherDevicesStream) {
  NEEDS_DEVICES(2);
  const CUdeviceptr block = given_ordered(large);
  {
    const PrimaryContext there{1};
    EXPECT_EQ(memory().free_ordered(block, StreamName{}), Answer{CUDA_SUCCESS});
    EXPECT_CUDA(driver().cuCtxPushCurrent(primary()));
    EXPECT_TRUE(clock->wait_for_frees(0, now_ns() + 20'000'000'000));
    EXPECT_FALSE(clock->wait_for_frees(0, now_ns())) << "there is nothing left to learn";
    CUcontext popped = nullptr;
    EXPECT_CUDA(driver().cuCtxPopCurrent(&popped));
  }
  EXPECT_CUDA(driver().cuCtxSetCurrent(primary()));
}

TEST_F(MemoryTest, AnAllocationThatItsStreamRefusesDoesNotCountAsUsed) {
  begin({.limit = SizeLimit::of_bytes(large)});
  PinnedWords words{1};
  HeldStream blocking{words, 0, CU_STREAM_DEFAULT};
  CUdeviceptr address = 0;
  ASSERT_EQ(memory().allocate_ordered(&address, large, blocking.name()), Answer{CUDA_SUCCESS});
  blocking.hold();
  ASSERT_EQ(memory().free_ordered(address, blocking.name()), Answer{CUDA_SUCCESS});
  // It gets memory that the legacy stream's work can use only after the other stream's.
  faulty.fail_call(Call::cuEventRecord, 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(memory().allocate_ordered(&address, large / 2, StreamName{}), std::nullopt);
  EXPECT_EQ(faulty.faults(), 1U);
  faulty.stop_failing();
  CUmemoryPool pool = nullptr;
  ASSERT_CUDA(driver().cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_EQ(memory().pools().serve(pool)->used(), 0U);
}

TEST_F(MemoryTest, MemoryThatAStreamRefusedIsStillInUse) {
  begin({.limit = SizeLimit::of_bytes(large), .wait = Duration{20'000}});
  PinnedWords words{1};
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const GivenStream other{CU_STREAM_NON_BLOCKING};
  const CUdeviceptr address = given_ordered(large);
  CUdeviceptr word = 0;
  ASSERT_CUDA(driver().cuMemHostGetDevicePointer(&word, words.data(), 0));
  ASSERT_CUDA(driver().cuStreamWaitValue32(nullptr, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_EQ(memory().free_ordered(address, StreamName{}), Answer{CUDA_SUCCESS});
  // The stream would use it only after the legacy stream's work.
  CUdeviceptr next = 0;
  faulty.fail_call(Call::cuEventRecord, 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(memory().allocate_ordered(&next, large, {.handle = blocking}), std::nullopt);
  EXPECT_EQ(faulty.faults(), 1U);
  faulty.stop_failing();
  // What the program learns of the stream, on which nothing was submitted.
  EXPECT_CUDA(driver().cuStreamQuery(blocking));
  clock->horizon_of(StreamName{.handle = blocking}).reached();
  EXPECT_EQ(memory().allocate_ordered(&next, large, {.handle = other}),
            Answer{CUDA_ERROR_OUT_OF_MEMORY});
  __atomic_store_n(words.data(), 1U, __ATOMIC_RELEASE);
  ASSERT_CUDA(driver().cuCtxSynchronize_v2000());
  EXPECT_EQ(memory().allocate_ordered(&next, large, {.handle = other}), Answer{CUDA_SUCCESS});
  EXPECT_EQ(memory().free(next), Answer{CUDA_SUCCESS});
}

// A thread that lends the block has found it before, and finds it gone after.
TEST_F(MemoryTest, ABlockThatAnotherProcessHasOpenIsNotForgottenByALateLender) {
  const CUdeviceptr address = given(large);
  const auto found = memory().held().find_start(address);
  const auto first = memory().lend(address, Lending::Secret{1});
  if (!first.ok()) GTEST_SKIP() << first.error().text();
  Lending& lending = memory().lending();
  ASSERT_TRUE(lending.borrow(first->id).ok());
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  const Lending::Entry late = lending.lend(*found->allocation, found->facts, Lending::Secret{2});
  EXPECT_FALSE(late.is_new);
  EXPECT_EQ(late.secret, first->secret);
  lending.forget(first->id);
  EXPECT_EQ(lending.kept(), 1U);
  lending.give_back(first->id);
  EXPECT_EQ(lending.lent(), 0U);
  memory().make_room();
  EXPECT_EQ(memory().counters(0).physical_held(), 0U) << "the last borrower frees the block";
}

// A capture that has just begun must not be broken by a wait that the driver's own free would not
// make.
TEST_F(MemoryTest, AfterACaptureAFreeWaitsAsTheDriversDoes) {
  const CUdeviceptr address = given(large);
  captures.began();
  captures.ended();
  submission_epoch.leave();
  const std::uint64_t synchronised = faulty.count_of("cuCtxSynchronize");
  const std::uint64_t freed = faulty.count_of("cuMemFree");
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(faulty.count_of("cuCtxSynchronize"), synchronised);
  EXPECT_EQ(faulty.count_of("cuMemFree"), freed + 1);
}

TEST_F(MemoryTest, AFreeOnAFullCardNeedsNoMemory) {
  const CUdeviceptr address = given(large);
  captures.began();
  captures.ended();
  submission_epoch.leave();
  faulty.fail_from(1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  faulty.stop_failing();
  EXPECT_FALSE(memory().find(address));
}

TEST_F(MemoryTest, AWaitThatFailsLeavesTheAllocationHeld) {
  const CUdeviceptr address = given(large);
  submission_epoch.leave();
  faulty.fail_call(Call::cuCtxSynchronize, 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(memory().free(address), Answer{CUDA_ERROR_LAUNCH_FAILED});
  EXPECT_TRUE(memory().find(address));
  faulty.stop_failing();
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
}

TEST_F(MemoryTest, AFreeThatIsRefusedLeavesSyncMemopsOn) {
  const CUdeviceptr address = given(large);
  memory().held().set_sync_memops(address, true);
  submission_epoch.leave();
  faulty.fail_call(Call::cuCtxSynchronize, 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(memory().free(address), Answer{CUDA_ERROR_LAUNCH_FAILED});
  faulty.stop_failing();
  EXPECT_TRUE(memory().held().any_has_sync_memops());
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  EXPECT_FALSE(memory().held().any_has_sync_memops());
}

// The current context is then another one, whose work proves nothing.
TEST_F(MemoryTest, AFreeInAnEndedContextWaitsForNoOtherContext) {
  OwnContext own;
  const CUdeviceptr address = given(large);
  own.leave();
  submission_epoch.leave();
  faulty.forget_calls();
  faulty.fail_call(Call::cuCtxPushCurrent_v2, 1, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(memory().free(address), Answer{CUDA_ERROR_INVALID_CONTEXT});
  EXPECT_EQ(faulty.count_of("cuCtxSynchronize"), 0U);
  EXPECT_TRUE(memory().find(address));
  faulty.stop_failing();
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  end();
}

TEST_F(MemoryTest, BesideACaptureAFreeInAnEndedContextTriesNoOtherContext) {
  OwnContext own;
  const CUdeviceptr address = given(large);
  own.leave();
  captures.began();
  faulty.forget_calls();
  faulty.fail_call(Call::cuCtxPushCurrent_v2, 1, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(memory().free(address), Answer{CUDA_ERROR_INVALID_CONTEXT});
  EXPECT_EQ(faulty.count_of("cuMemAlloc"), 0U);
  faulty.stop_failing();
  captures.ended();
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  end();
}

TEST_F(MemoryTest, AWaitForAnEndedContextWaitsForNoOtherContext) {
  OwnContext own;
  own.leave();
  faulty.forget_calls();
  faulty.fail_call(Call::cuCtxPushCurrent_v2, 1, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_FALSE(memory().work().wait_for(own.get()).ok());
  EXPECT_EQ(faulty.count_of("cuCtxSynchronize"), 0U);
}

TEST_F(MemoryTest, NothingIsWaitedForTwice) {
  const auto waits = [this](CUdeviceptr address) {
    const auto count = [&] {
      return faulty.count_of("cuCtxSynchronize") + faulty.count_of("cuMemFree");
    };
    const std::uint64_t before = count();
    EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
    return count() != before;
  };
  const CUdeviceptr first = given(large);
  const CUdeviceptr second = given(large);
  const CUdeviceptr third = given(large);
  submission_epoch.leave();
  EXPECT_TRUE(waits(first));
  EXPECT_FALSE(waits(second));
  sees_everything = false;
  EXPECT_TRUE(waits(third)) << "there may be work that nobody told us of";
}

// As when a library submits it past the hooks: only the driver knows where it is.
TEST_F(MemoryTest, ARelaxedFreeWaitsForWorkThatMayBeUnseen) {
  begin({.free = FreeMode::Relaxed});
  const CUdeviceptr address = given(large);
  sees_everything = false;
  const GivenStream stream;
  SlowWork work{kernels(), stream};
  const std::uint64_t frees = faulty.count_of("cuMemFree");
  std::atomic<bool> is_freed{false};
  std::thread ends_the_work{[&] {
    while (!is_freed && faulty.count_of("cuMemFree") == frees) std::this_thread::yield();
    work.end();
  }};
  const Answer answer = memory().free(address);
  const CUresult state_of_the_work = driver().cuStreamQuery(stream);
  is_freed = true;
  ends_the_work.join();
  EXPECT_EQ(answer, Answer{CUDA_SUCCESS});
  EXPECT_ANSWER(CUDA_SUCCESS, state_of_the_work);
}

// Such a capture records the driver's own allocation: memory of cuvmm's would be reused before the
// graph runs.
TEST_F(MemoryTest, AStreamWhoseCaptureIsUnseenIsLeftToTheDriver) {
  const GivenStream stream;
  const StreamName name{.handle = stream};
  CUdeviceptr served = 0;
  ASSERT_EQ(memory().allocate_ordered(&served, large, name), Answer{CUDA_SUCCESS});
  const CUdeviceptr blocking = given(large);
  sees_everything = false;
  GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));

  CUdeviceptr address = 0;
  EXPECT_EQ(memory().allocate_ordered(&address, large, name), std::nullopt);
  EXPECT_EQ(memory().free_ordered(served, name), std::nullopt);
  {
    const RelaxedCapture as_the_program{driver()};
    EXPECT_EQ(memory().free(blocking), Answer{CUDA_SUCCESS});
  }

  CUgraph graph = nullptr;
  EXPECT_CUDA(driver().cuStreamEndCapture(stream, &graph)) << "the free broke the capture";
  EXPECT_CUDA(driver().cuGraphDestroy(graph));
  EXPECT_EQ(memory().free_ordered(served, name), Answer{CUDA_SUCCESS});
}

// The work ends when the free waits for it, or after the free has returned without waiting.
TEST_F(MemoryTest, OnAFullCardAFreeWaitsForWorkEvenAfterACapture) {
  const CUdeviceptr address = given(large);
  captures.began();
  captures.ended();
  const GivenStream stream;
  SlowWork work{kernels(), stream};
  submission_epoch.leave();
  const FullCard full;
  const std::uint64_t waits = faulty.count_of("cuCtxSynchronize");
  std::atomic<bool> is_freed{false};
  std::thread ends_the_work{[&] {
    while (!is_freed && faulty.count_of("cuCtxSynchronize") == waits) std::this_thread::yield();
    work.end();
  }};
  EXPECT_EQ(memory().free(address), Answer{CUDA_SUCCESS});
  const CUresult state_of_the_work = driver().cuStreamQuery(stream);
  is_freed = true;
  ends_the_work.join();
  EXPECT_ANSWER(CUDA_SUCCESS, state_of_the_work);
  EXPECT_GT(faulty.count_of("cuCtxSynchronize"), waits)
      << "the card was not full, or nobody waited";
}

}  // namespace
}  // namespace cuvmm::test
