// SPDX-License-Identifier: Apache-2.0
// What is known about the program's calls between two waits.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/hook_coverage.hpp"
#include "stream/submission_epoch.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST(SubmissionEpoch, IsNotThereBeforeAnyWork) {
  SubmissionEpoch note;
  EXPECT_FALSE(note.is_left());
}

TEST(SubmissionEpoch, IsTakenOnceHoweverOftenItAdvanced) {
  SubmissionEpoch note;
  const std::uint64_t before = note.take();
  note.leave();
  note.leave();
  const std::uint64_t taken = note.take();
  EXPECT_NE(taken, before);
  EXPECT_EQ(note.take(), taken);
}

TEST(SubmissionEpoch, CanBeLeftAgain) {
  SubmissionEpoch note;
  note.leave();
  const std::uint64_t taken = note.take();
  note.leave();
  EXPECT_TRUE(note.is_left());
  EXPECT_NE(note.take(), taken);
}

// Threads submit (count) and leave the note, then wait, unless they know that a wait which began
// after the last note covers it. The two contexts are waited for separately.
TEST(SubmissionEpoch, WithAnUnchangedNumberMeansAllWorkWasWaitedFor) {
  struct Context {
    std::atomic<std::uint64_t> covered_note{~std::uint64_t{0}};
    std::atomic<std::uint64_t> waited_for{0};
  };
  SubmissionEpoch note;
  std::array<Context, 2> contexts;
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> skipped{0};
  std::atomic<int> unseen{0};
  const auto raise = [](std::atomic<std::uint64_t>& value, std::uint64_t to) {
    std::uint64_t now = value.load();
    while (now < to && !value.compare_exchange_weak(now, to)) {
    }
  };

  const auto submit_and_free = [&](Context& context) {
    for (std::uint64_t i = 0; i < scaled(20'000); ++i) {
      const std::uint64_t mine = submitted.fetch_add(1) + 1;
      note.leave();
      for (int frees = 0; frees < 2; ++frees) {
        const std::uint64_t number = note.take();
        if (context.covered_note.load() == number) {
          ++skipped;
        } else {
          raise(context.waited_for, submitted.load());
          context.covered_note.store(number);
        }
        if (context.waited_for.load() < mine) ++unseen;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(submit_and_free, std::ref(contexts[i % 2]));
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(unseen, 0);
  EXPECT_GT(skipped, 0U);
}

TEST(HookCoverage, IsLostPermanently) {
  HookCoverage coverage;
  EXPECT_TRUE(coverage.is_whole());
  EXPECT_TRUE(coverage.lose());
  EXPECT_FALSE(coverage.lose());
  EXPECT_FALSE(coverage.is_whole());
}

TEST(HookCoverage, StaysWholeWhenAFunctionIsOnlyHandedOut) {
  HookCoverage coverage;
  coverage.handed_out_unlisted();
  EXPECT_EQ(coverage.unlisted(), 1u);
  EXPECT_TRUE(coverage.is_whole());
}

}  // namespace
}  // namespace cuvmm::test
