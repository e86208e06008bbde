// SPDX-License-Identifier: Apache-2.0
// The marks that the scheduler places in streams.
#include "sched/event_marks.hpp"
#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"

namespace cuvmm::test {
namespace {

class Marks : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    GIVEN(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    EXPECT_CUDA(driver().cuStreamDestroy(stream_));
    DriverContract::TearDown();
  }
  Batch batch() { return batch_on(stream_); }
  Batch batch_on(CUstream stream) {
    return {.context = primary(), .stream = streams_.find({stream})->id, .handle = stream};
  }
  std::uint64_t records() const { return watched_.count_of("cuEventRecord"); }

  const FaultyDriver watched_{driver()};
  Captures captures_;
  LegacyBarrier legacy_;
  StreamTable streams_{driver(), &legacy_};
  EventMarks marks_{watched_, captures_, streams_, legacy_, [] {}};
  CUstream stream_ = nullptr;
};

TEST_F(Marks, AreSetInALiveStream) {
  Batch between = batch();
  EXPECT_TRUE(marks_.mark_begin(between));
  EXPECT_TRUE(marks_.mark_end(between));
  EXPECT_EQ(records(), 2U);
  marks_.drop(between);
}

TEST_F(Marks, AreSetInALegacyStreamOnlyIfItOrdersNoOther) {
  Batch alone = batch_on(CU_STREAM_LEGACY);
  EXPECT_TRUE(marks_.mark_begin(alone));
  EXPECT_TRUE(marks_.mark_end(alone));
  marks_.drop(alone);
  CUstream blocking = nullptr;
  GIVEN(driver().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  streams_.stream_began(blocking);
  Batch beside = batch_on(CU_STREAM_LEGACY);
  EXPECT_FALSE(marks_.mark_begin(beside));
  EXPECT_EQ(records(), 2U);
  EXPECT_CUDA(driver().cuStreamDestroy(blocking));
}

TEST_F(Marks, AreNotSetInAStreamThatHasEnded) {
  Batch between = batch();
  streams_.stream_ended(stream_);
  EXPECT_FALSE(marks_.mark_begin(between));
  EXPECT_EQ(records(), 0U);
}

TEST_F(Marks, AreNotSetWhileTheContextEnds) {
  Batch between = batch();
  streams_.context_ends(primary());
  EXPECT_FALSE(marks_.mark_begin(between));
  EXPECT_EQ(records(), 0U);
  streams_.context_stays(primary());
  EXPECT_TRUE(marks_.mark_begin(between));
  EXPECT_TRUE(marks_.mark_end(between));
  marks_.drop(between);
}

}  // namespace
}  // namespace cuvmm::test
