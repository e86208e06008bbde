// SPDX-License-Identifier: Apache-2.0
#include "base/lock.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

namespace cuvmm::test {
namespace {

TEST(Lock, InOrderIsTaken) {
  Lock first{LockOrder::ChunkStore};
  SharedLock second{LockOrder::GiveBack};
  Lock last{LockOrder::SimProcess};
  for (int round = 0; round < 2; ++round) {
    const Holding a{first};
    const Reading b{second};
    const Holding c{last};
  }
  const Writing b{second};
  const Holding c{last};
}

TEST(Lock, MayBeReleasedInAnyOrder) {
  Lock first{LockOrder::ChunkStore};
  Lock second{LockOrder::GiveBack};
  Holding a{first};
  Holding b{second};
  a.unlock();
  b.unlock();
  a.lock();
  b.lock();
}

TEST(Lock, TryingNeedsNoOrder) {
  Lock first{LockOrder::ChunkStore};
  Lock second{LockOrder::GiveBack};
  const Holding b{second};
  const Holding a{first, std::try_to_lock};
  EXPECT_TRUE(a.owns_lock());
}

TEST(Lock, OrderIsPerThread) {
  Lock first{LockOrder::ChunkStore};
  Lock second{LockOrder::GiveBack};
  const Holding b{second};
  std::thread other{[&] { const Holding a{first}; }};
  other.join();
}

TEST(Lock, ManyThreadsMayReadTogether) {
  SharedLock lock{LockOrder::GiveBack};
  const Reading here{lock};
  bool read = false;
  std::thread other{[&] {
    const Reading there{lock};
    read = true;
  }};
  other.join();
  EXPECT_TRUE(read);
}

TEST(Lock, ConditionWaitsUnderALock) {
  Lock lock{LockOrder::ChunkStore};
  Condition changed;
  bool ready = false;
  std::thread other{[&] {
    const Holding hold{lock};
    ready = true;
    changed.notify_one();
  }};
  {
    Holding hold{lock};
    changed.wait(hold, [&] { return ready; });
    EXPECT_TRUE(hold.owns_lock());
  }
  other.join();
}

class LockDeathTest : public ::testing::Test {
  void SetUp() override {
#ifdef NDEBUG
    GTEST_SKIP() << "the order is checked in debug builds only";
#endif
  }
};

TEST_F(LockDeathTest, TakingAnEarlierOneAbortsWithBothNames) {
  Lock first{LockOrder::ChunkStore};
  Lock second{LockOrder::GiveBack};
  const Holding b{second};
  EXPECT_DEATH(first.lock(), "taking ChunkStore while holding GiveBack");
}

TEST_F(LockDeathTest, ReadingUnderALaterOneAborts) {
  SharedLock first{LockOrder::GiveBack};
  Lock second{LockOrder::SimProcess};
  const Holding b{second};
  EXPECT_DEATH(first.lock_shared(), "taking GiveBack while holding SimProcess");
}

TEST_F(LockDeathTest, TwoOfOneOrderAbort) {
  Lock one{LockOrder::ChunkStore};
  Lock another{LockOrder::ChunkStore};
  const Holding a{one};
  EXPECT_DEATH(another.lock(), "taking ChunkStore while holding ChunkStore");
  EXPECT_DEATH((void)another.try_lock(), "taking ChunkStore while holding ChunkStore");
}

TEST_F(LockDeathTest, AnEarlierOneReleasedFirstStillCountsTheLater) {
  Lock first{LockOrder::ChunkStore};
  Lock second{LockOrder::GiveBack};
  Holding a{first};
  const Holding b{second};
  a.unlock();
  EXPECT_DEATH(first.lock(), "taking ChunkStore while holding GiveBack");
}

TEST_F(LockDeathTest, ReleasingWhatIsNotHeldAborts) {
  Lock lock{LockOrder::ChunkStore};
  EXPECT_DEATH(lock.unlock(), "releasing ChunkStore, which this thread does not hold");
}

TEST(LockDocs, ListTheLocksInTheirOrder) {
  std::ifstream file{CUVMM_SOURCE_DIR "/docs/internals/locking.md"};
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(describe_locks()), std::string::npos)
      << "docs/internals/locking.md should hold this table:\n"
      << describe_locks();
}

}  // namespace
}  // namespace cuvmm::test
