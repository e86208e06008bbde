// SPDX-License-Identifier: Apache-2.0
// What is known of the program's calls between two waits.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/sight.hpp"
#include "stream/work_note.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST(WorkNote, IsNotThereBeforeAnyWork) {
  WorkNote note;
  EXPECT_FALSE(note.take());
}

TEST(WorkNote, IsTakenOnceHoweverOftenItWasLeft) {
  WorkNote note;
  note.leave();
  note.leave();
  EXPECT_TRUE(note.take());
  EXPECT_FALSE(note.take());
}

TEST(WorkNote, CanBeLeftAgain) {
  WorkNote note;
  note.leave();
  note.take();
  note.leave();
  EXPECT_TRUE(note.take());
}

// Threads submit (count) and leave the note; one waits for what was submitted where it finds one.
// Whoever holds the lock and finds no note may count on every submission whose call had returned.
TEST(WorkNote, ThatIsGoneMeansWorkThatWasWaitedFor) {
  WorkNote note;
  std::mutex wait;
  std::atomic<std::uint64_t> submitted{0};
  std::uint64_t waited_for = 0;
  std::atomic<int> unseen{0};

  const auto submit_and_free = [&] {
    for (std::uint64_t i = 0; i < scaled(20'000); ++i) {
      const std::uint64_t mine = submitted.fetch_add(1) + 1;
      note.leave();
      const std::scoped_lock lock{wait};
      if (note.take()) waited_for = submitted.load();
      if (waited_for < mine) ++unseen;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(submit_and_free);
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(unseen, 0);
}

TEST(Sight, IsLostOnceAndForGood) {
  Sight sight;
  EXPECT_TRUE(sight.is_whole());
  EXPECT_TRUE(sight.lose());
  EXPECT_FALSE(sight.lose());
  EXPECT_FALSE(sight.is_whole());
}

TEST(Sight, StaysWholeWhenAFunctionIsOnlyHandedOut) {
  Sight sight;
  sight.handed_out_unlisted();
  EXPECT_EQ(sight.unlisted(), 1u);
  EXPECT_TRUE(sight.is_whole());
}

}  // namespace
}  // namespace cuvmm::test
