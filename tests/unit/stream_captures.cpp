// SPDX-License-Identifier: Apache-2.0
// Captures that begin while other threads make calls that would break them, and captures that end
// with their stream or context.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "stream/captures.hpp"

namespace cuvmm::test {
namespace {

using std::chrono::milliseconds;

std::uint64_t run_ns() {
  timespec run;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
  return static_cast<std::uint64_t>(run.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(run.tv_nsec);
}

TEST(Captures, BeginAtOnceUnlessHeldOff) {
  Captures captures;
  { const Captures::CaptureBlock over{captures}; }
  captures.began();
  EXPECT_TRUE(captures.any());
  captures.ended();
  EXPECT_FALSE(captures.any());
  EXPECT_TRUE(captures.ever());
}

TEST(Captures, AreSeenByCallsWhileLive) {
  Captures captures;
  EXPECT_TRUE(Captures::CaptureBlock{captures}.none_lives());
  captures.began();
  EXPECT_FALSE(Captures::CaptureBlock{captures}.none_lives());
  captures.ended();
  EXPECT_TRUE(Captures::CaptureBlock{captures}.none_lives());
}

TEST(Captures, BeginWhenTheCallHasBeenMade) {
  Captures captures;
  std::optional<Captures::CaptureBlock> call{captures};
  std::uint64_t made_at = 0;
  std::thread caller{[&] {
    std::this_thread::sleep_for(milliseconds{20});
    made_at = now_ns();
    call.reset();
  }};
  const std::uint64_t asked_at = now_ns();
  captures.began();
  const std::uint64_t began_at = now_ns();
  caller.join();
  // It waits no longer than this, which is not enough if the caller gets no core.
  EXPECT_TRUE(began_at >= made_at || began_at - asked_at >= 100'000'000U);
}

// A call's wait for work may take any length of time.
TEST(Captures, BeginEventuallyIfTheCallWaits) {
  Captures captures;
  const Captures::CaptureBlock call{captures};
  const std::uint64_t run_before = run_ns();
  const std::uint64_t began = now_ns();
  captures.began();
  const std::uint64_t passed = now_ns() - began;
  EXPECT_GE(passed, 100'000'000U);
  EXPECT_TRUE(run_ns() - run_before >= 20'000'000U || passed >= 5'000'000'000U)
      << "another thread may not have run in that time";
}

const CUstream stream = reinterpret_cast<CUstream>(0x1000);
const CUcontext context = reinterpret_cast<CUcontext>(0x2000);

TEST(Captures, LiveUntilTheDriverHasEndedTheirStream) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  {
    Captures::Ending ending{captures, stream};
    EXPECT_TRUE(captures.any());
    ending.is_over();
    EXPECT_FALSE(captures.any());
  }
  EXPECT_FALSE(captures.any());
}

TEST(Captures, StayLiveIfTheDriverDoesNotEndTheirContext) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  { const Captures::Ending refused{captures, context}; }
  EXPECT_TRUE(captures.any());
  captures.ended({.handle = stream});
  EXPECT_FALSE(captures.any());
}

// Another thread may end a capture during a call that might have ended its context and does not.
TEST(Captures, MayEndWhileTheirContextMightEnd) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  {
    const Captures::Ending stays{captures, context};
    EXPECT_FALSE(captures.oldest().has_value());
    captures.ended({.handle = stream});
    EXPECT_FALSE(captures.any());
    captures.began({.context = context, .handle = stream});
    EXPECT_TRUE(captures.oldest().has_value());
  }
  EXPECT_TRUE(captures.any());
  captures.ended({.handle = stream});
  EXPECT_FALSE(captures.any());
}

TEST(Captures, AreForgottenOnceIfTwoCallsEndTheirContext) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  {
    Captures::Ending one{captures, context};
    Captures::Ending other{captures, context};
    one.is_over();
    other.is_over();
  }
  EXPECT_FALSE(captures.any());
  captures.began({.context = context, .handle = stream});
  EXPECT_TRUE(captures.any());
}

// The driver may give the same handle to the next stream before the destroying call returns.
TEST(Captures, OfTheNextStreamWithThatHandleStayLive) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  Captures::Ending ending{captures, stream};
  captures.began({.context = context, .handle = stream});
  ending.is_over();
  EXPECT_TRUE(captures.any());
  captures.ended({.handle = stream});
  EXPECT_FALSE(captures.any());
}

TEST(Captures, ThatNeverBeganAreForgotten) {
  Captures captures;
  captures.began({.context = context, .handle = stream});
  const std::uint64_t refused = captures.began({.context = context, .handle = stream});
  captures.never_began(refused);
  EXPECT_TRUE(captures.any());
  captures.never_began(refused);
  EXPECT_TRUE(captures.any());
  captures.ended({.handle = stream});
  EXPECT_FALSE(captures.any());
}

TEST(Captures, OfAThreadsOwnStreamAreOfOneContext) {
  const Captures::Origin own{.context = context, .handle = CU_STREAM_PER_THREAD, .thread = 1};
  Captures captures;
  captures.began(own);
  captures.ended({.context = nullptr, .handle = CU_STREAM_PER_THREAD, .thread = 1});
  captures.ended({.context = context, .handle = CU_STREAM_PER_THREAD, .thread = 2});
  EXPECT_TRUE(captures.any());
  captures.ended(own);
  EXPECT_FALSE(captures.any());
}

}  // namespace
}  // namespace cuvmm::test
