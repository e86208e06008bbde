// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "stream/gate.hpp"
#include "support/refused_system_call.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

std::uint64_t in_ms(std::uint64_t ms) {
  return now_ns() + ms * 1'000'000;
}

TEST(Gate, ClosesAndOpensWhileNobodyPasses) {
  Gate gate;
  ASSERT_TRUE(gate.close(in_ms(20'000)));
  gate.open();
  const Gate::Pass pass{gate};
}

TEST(Gate, WaitsForThreadsInside) {
  Gate gate;
  std::atomic<bool> entered{false};
  std::atomic<bool> leave{false};
  std::atomic<bool> left{false};
  std::jthread other{[&] {
    {
      const Gate::Pass pass{gate};
      entered = true;
      while (!leave) ::usleep(100);
      left = true;
    }
  }};
  while (!entered) ::usleep(100);
  EXPECT_FALSE(gate.close(in_ms(20))) << "somebody is inside";
  leave = true;
  ASSERT_TRUE(gate.close(in_ms(20'000)));
  EXPECT_TRUE(left);
  gate.open();
  other.join();
}

// Returns the exit status of a forked child that runs this.
int in_a_child(const std::function<bool()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// The parent's other threads do not exist in the child, which could otherwise never be stopped.
TEST(Gate, AChildForgetsThreadsOfItsParentThatWereInside) {
  Gate gate;
  std::atomic<bool> entered{false};
  std::atomic<bool> leave{false};
  std::thread other{[&] {
    const Gate::Pass pass{gate};
    entered = true;
    while (!leave) ::usleep(100);
  }};
  while (!entered) ::usleep(100);
  const auto closes_after_fork = [&] {
    Gate::forget_after_fork();
    return gate.close(in_ms(1000));
  };
  EXPECT_EQ(in_a_child(closes_after_fork), 0);
  EXPECT_FALSE(gate.close(in_ms(20))) << "the parent's thread is still inside";
  leave = true;
  other.join();
}

TEST(Gate, AChildLeavesWhatItsOnlyThreadHadEntered) {
  Gate gate;
  const auto leaves_after_fork = [&](std::optional<Gate::Pass>& pass) {
    Gate::forget_after_fork();
    pass.reset();
    return gate.close(in_ms(1000));
  };
  std::optional<Gate::Pass> pass;
  pass.emplace(gate);
  EXPECT_EQ(in_a_child([&] { return leaves_after_fork(pass); }), 0);
}

TEST(Gate, BlocksLaterThreads) {
  Gate gate;
  ASSERT_TRUE(gate.close(in_ms(20'000)));
  std::atomic<bool> passed{false};
  std::thread other{[&] {
    const Gate::Pass pass{gate};
    passed = true;
  }};
  ::usleep(20'000);
  EXPECT_FALSE(passed);
  gate.open();
  other.join();
  EXPECT_TRUE(passed);
}

TEST(Gate, LetsTheThreadThatClosedItPass) {
  Gate gate;
  ASSERT_TRUE(gate.close(in_ms(20'000)));
  { const Gate::Pass pass{gate}; }
  gate.open();
}

TEST(Gate, IsOpenAgainIfItCouldNotBeClosed) {
  Gate gate;
  std::atomic<int> phase{0};
  std::thread inside{[&] {
    const Gate::Pass pass{gate};
    phase = 1;
    while (phase != 2) ::usleep(100);
  }};
  while (phase != 1) ::usleep(100);
  EXPECT_FALSE(gate.close(in_ms(5)));
  std::thread other{[&] { const Gate::Pass pass{gate}; }};
  other.join();
  phase = 2;
  inside.join();
}

TEST(Gate, PassesMayNest) {
  Gate gate;
  const Gate::Pass outer{gate};
  { const Gate::Pass inner{gate}; }
  std::thread closer{
      [&] { EXPECT_FALSE(gate.close(in_ms(5))) << "the outer one is still inside"; }};
  closer.join();
}

TEST(Gate, ClosesOnceThreadsKnowThatMembarrierIsRefused) {
  Gate gate;
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) {
    GTEST_SKIP() << "the system makes none";
  }
  bool refused = false;
  std::thread closer{[&] {
    refused = refuse_system_call(SYS_membarrier);
    if (!refused) return;
    EXPECT_FALSE(gate.close(in_ms(1000))) << "a thread may enter and not be seen";
    EXPECT_TRUE(gate.close(in_ms(20'000)));
    gate.open();
  }};
  closer.join();
  if (!refused) GTEST_SKIP() << "no filter can be set here";
  const Gate::Pass pass{gate};
}

// The thread that closed the gate has exclusive use of state that others touch only inside.
TEST(Gate, KeepsManyThreadsApart) {
  Gate gate;
  std::uint64_t shared = 0;  // touched only while the gate is closed
  std::atomic<std::uint64_t> inside{0};
  std::atomic<bool> together{false};
  std::vector<std::thread> threads;
  std::atomic<int> running{4};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t n = 0; n < scaled(50'000); ++n) {
        const Gate::Pass pass{gate};
        inside.fetch_add(1);
        inside.fetch_sub(1);
      }
      --running;
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      do {
        if (!gate.close(in_ms(20'000))) continue;
        if (inside != 0) together = true;
        ++shared;
        gate.open();
        ::usleep(50);
      } while (running > 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(together);
  EXPECT_GT(shared, 0U);
}

// Otherwise a program whose only thread waits for memory would seem idle.
TEST(CallBarrier, AThreadThatStepsOutIsStillInACallButHoldsNobodyUp) {
  CallBarrier calls{CallBarrier::Of::Calls};
  ASSERT_TRUE(calls.passes());
  {
    const CallBarrier::Pass pass{calls};
    EXPECT_FALSE(calls.passes());
    const CallBarrier::OutsideBarrier stepped_out{calls};
    EXPECT_FALSE(calls.passes());
    EXPECT_TRUE(calls.shut(in_ms(20), CallBarrier::Exempt::Nobody));
    calls.open();
  }
  EXPECT_TRUE(calls.passes());
}

TEST(GracePeriod, IsOverAtOnceIfNoOtherThreadIsInside) {
  CallBarrier calls{CallBarrier::Of::Calls};
  const CallBarrier::Pass own{calls};
  const auto period = CallBarrier::GracePeriod::begin();
  ASSERT_TRUE(period);
  EXPECT_TRUE(period->is_over());
}

// Even if it has entered again since.
TEST(GracePeriod, IsOverWhenAThreadThatWasInsideHasLeft) {
  for (const auto of :
       {CallBarrier::Of::Calls, CallBarrier::Of::Work, CallBarrier::Of::Questions}) {
    CallBarrier threshold{of};
    std::binary_semaphore is_inside{0};
    std::binary_semaphore may_go{0};
    std::jthread other{[&] {
      {
        const CallBarrier::Pass pass{threshold};
        is_inside.release();
        may_go.acquire();
      }
      const CallBarrier::Pass again{threshold};
      is_inside.release();
      may_go.acquire();
    }};
    is_inside.acquire();
    const auto period = CallBarrier::GracePeriod::begin();
    ASSERT_TRUE(period);
    EXPECT_FALSE(period->is_over());
    may_go.release();
    is_inside.acquire();
    EXPECT_TRUE(period->is_over());
    may_go.release();
  }
}

// The driver may hold such a call for as long as the process is off its devices.
TEST(GracePeriod, DoesNotWaitForCallsThatAreOnlyForwarded) {
  CallBarrier forwarded{CallBarrier::Of::Forwarded};
  std::binary_semaphore is_inside{0};
  std::binary_semaphore may_end{0};
  EXPECT_FALSE(forwarded.find_caller_inside());
  std::jthread other{[&] {
    const CallBarrier::Pass pass{forwarded, Call::cuCtxGetCurrent};
    is_inside.release();
    may_end.acquire();
  }};
  is_inside.acquire();
  const auto insider = forwarded.find_caller_inside();
  ASSERT_TRUE(insider);
  EXPECT_EQ(insider->call, Call::cuCtxGetCurrent);
  const auto period = CallBarrier::GracePeriod::begin();
  ASSERT_TRUE(period);
  EXPECT_TRUE(period->is_over());
  may_end.release();
  other.join();
  EXPECT_FALSE(forwarded.find_caller_inside());
}

TEST(GracePeriod, IsOverWhenAThreadThatWasInsideHasEnded) {
  CallBarrier calls{CallBarrier::Of::Calls};
  std::binary_semaphore is_inside{0};
  std::binary_semaphore may_end{0};
  std::jthread other{[&] {
    const CallBarrier::Pass pass{calls};
    is_inside.release();
    may_end.acquire();
    ::pthread_exit(nullptr);
  }};
  is_inside.acquire();
  const auto period = CallBarrier::GracePeriod::begin();
  ASSERT_TRUE(period);
  EXPECT_FALSE(period->is_over());
  may_end.release();
  other.join();
  EXPECT_TRUE(period->is_over());
}

TEST(GracePeriod, IsUnknownWhileMembarrierIsRefused) {
  std::thread alone{[] {
    const CallBarrier calls{CallBarrier::Of::Calls};
    if (!refuse_system_call(SYS_membarrier)) return;
    EXPECT_FALSE(CallBarrier::GracePeriod::begin()) << "a thread may be inside and not be seen";
    EXPECT_TRUE(CallBarrier::GracePeriod::begin());
  }};
  alone.join();
}

}  // namespace
}  // namespace cuvmm::test
