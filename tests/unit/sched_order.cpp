// SPDX-License-Identifier: Apache-2.0
// What an operation must be issued after, by the rules of streams and events.
#include <gtest/gtest.h>

#include "unit/heap_in_use.hpp"
#include "unit/sched_world.hpp"

namespace cuvmm::test {
namespace {

class OrderRules : public testing::Test {
 protected:
  // Submits in this lane. Returns the positions in other lanes that it comes after.
  std::vector<QueuePosition> submit(Lane& lane, const Request& request) {
    Operation* operation = lane.take_place();
    order_.submitted(request, {&lane, operation->number}, operation->after);
    Lane::publish(*operation);
    return operation->after;
  }
  static bool has(const std::vector<QueuePosition>& places, const Lane& lane) {
    return std::any_of(places.begin(), places.end(),
                       [&](const QueuePosition& place) { return place.lane == &lane; });
  }

  Streams streams_;
  Client ann_{"ann", 0, 1, 1};
  Client ben_{"ben", 0, 1, 2};
  Lane a_{ann_, 0, 64};
  Lane b_{ben_, 0, 64};
  Order order_;
};

TEST_F(OrderRules, WorkOfOneStreamKeepsItsOrderAcrossLanes) {
  StreamState& stream = streams_.add();
  EXPECT_TRUE(submit(a_, on(stream)).empty());
  EXPECT_TRUE(has(submit(b_, on(stream)), a_));
}

TEST_F(OrderRules, OtherStreamsAreIndependent) {
  submit(a_, on(streams_.add()));
  EXPECT_TRUE(submit(b_, on(streams_.add(StreamKind::Blocking))).empty());
}

TEST_F(OrderRules, IssuedWorkNeedNotBeWaitedFor) {
  StreamState& stream = streams_.add();
  submit(a_, on(stream));
  a_.first_is_issued();
  EXPECT_TRUE(submit(b_, on(stream)).empty());
}

TEST_F(OrderRules, LegacyComesAfterBlockingStreamsAndTheyAfterIt) {
  StreamState& blocking = streams_.add(StreamKind::Blocking);
  StreamState& legacy = streams_.add(StreamKind::Legacy);
  submit(a_, on(blocking));
  EXPECT_TRUE(has(submit(b_, on(legacy)), a_));
  EXPECT_TRUE(has(submit(a_, on(blocking)), b_));
  EXPECT_TRUE(has(submit(a_, on(streams_.add(StreamKind::PerThread))), b_));
}

// The driver orders them, in whatever streams they are.
TEST_F(OrderRules, LaunchesOfOneGraphInstanceKeepTheirOrder) {
  const auto launches = [&](std::uintptr_t number) {
    Request request = on(streams_.add());
    request.call = Call::cuGraphLaunch;
    request.graph = reinterpret_cast<CUgraphExec>(number << 8);
    return request;
  };
  submit(a_, launches(1));
  EXPECT_TRUE(submit(b_, launches(2)).empty());
  EXPECT_TRUE(has(submit(b_, launches(1)), a_));
  EXPECT_EQ(order_.launches_of(reinterpret_cast<CUgraphExec>(0x100)).size(), 2U);
  a_.first_is_issued();
  EXPECT_EQ(order_.launches_of(reinterpret_cast<CUgraphExec>(0x100)).size(), 1U);
  for (std::uintptr_t i = 3; i < 300; ++i) {
    submit(a_, launches(i));
    a_.first_is_issued();
  }
  EXPECT_EQ(order_.launches_of(reinterpret_cast<CUgraphExec>(0x100)).size(), 1U) << "not forgotten";
}

TEST_F(OrderRules, LegacyIgnoresNonBlockingStreamsAndOtherContexts) {
  submit(a_, on(streams_.add(StreamKind::NonBlocking)));
  submit(a_, on(streams_.add(StreamKind::Blocking, 2)));
  EXPECT_TRUE(submit(b_, on(streams_.add(StreamKind::Legacy))).empty());
}

TEST_F(OrderRules, AWaitComesAfterTheRecordAndTheNextRecordAfterTheWait) {
  StreamState& first = streams_.add();
  StreamState& second = streams_.add();
  CUevent event = event_number(1);
  submit(a_, records(event, first));
  EXPECT_TRUE(has(submit(b_, waits_for(event, second)), a_));
  EXPECT_TRUE(has(submit(a_, records(event, first)), b_));
}

TEST_F(OrderRules, AWaitForAnUnrecordedEventWaitsForNothing) {
  EXPECT_TRUE(submit(b_, waits_for(event_number(1), streams_.add())).empty());
}

TEST_F(OrderRules, QueriesSeeTheLastRecordOnly) {
  StreamState& stream = streams_.add();
  CUevent event = event_number(1);
  submit(a_, records(event, stream));
  submit(b_, waits_for(event, streams_.add()));
  EXPECT_TRUE(has(order_.of_event(event), a_));
  EXPECT_FALSE(has(order_.of_event(event), b_));
  EXPECT_TRUE(has(order_.users_of(event), b_));
  order_.recorded_directly(event, stream.context);
  EXPECT_TRUE(order_.of_event(event).empty());
}

TEST_F(OrderRules, ALegacyStreamIsNotDoneWhileBlockingOnesWait) {
  submit(a_, on(streams_.add(StreamKind::Blocking)));
  StreamState& legacy = streams_.add(StreamKind::Legacy);
  StreamState& idle = streams_.add(StreamKind::Blocking);
  EXPECT_TRUE(has(order_.of_stream(legacy), a_));
  submit(b_, on(legacy));
  EXPECT_TRUE(order_.of_stream(idle).empty());  // an idle stream has no work of its own
  EXPECT_TRUE(has(order_.before_work_on(idle), b_));
}

TEST_F(OrderRules, AContextCoversAllItsLanes) {
  submit(a_, on(streams_.add()));
  submit(b_, on(streams_.add()));
  const auto places = order_.of_context(context_number(1));
  EXPECT_TRUE(has(places, a_) && has(places, b_));
  EXPECT_TRUE(order_.of_context(context_number(2)).empty());
}

// Streams may end unseen, with their context or thread.
TEST_F(OrderRules, FewStreamsWithoutUnissuedWorkAreKept) {
  constexpr std::size_t count = 4'000;
  std::vector<const StreamState*> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(&streams_.add());
  const std::size_t before = heap_in_use();
  for (const StreamState* const stream : streams) {
    submit(a_, on(*stream));
    a_.first_is_issued();
  }
  EXPECT_LT(heap_in_use(), before + 16 * count);
}

TEST_F(OrderRules, StreamsWithUnissuedWorkAreKept) {
  const StreamState& first = streams_.add();
  submit(a_, on(first));
  for (int i = 0; i < 1'000; ++i) {
    submit(b_, on(streams_.add()));
    b_.first_is_issued();
  }
  EXPECT_TRUE(has(submit(b_, on(first)), a_));
}

}  // namespace
}  // namespace cuvmm::test
