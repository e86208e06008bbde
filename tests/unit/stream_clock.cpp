// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "unit/stream_clock_support.hpp"

namespace cuvmm::test {
namespace {

TEST_F(StreamClockTest, TheSameStreamIsOneHoweverItIsNamed) {
  EXPECT_EQ(id({nullptr, false}), id({CU_STREAM_LEGACY, false}));
  EXPECT_EQ(id({nullptr, true}), id({CU_STREAM_PER_THREAD, false}));
  EXPECT_NE(id({nullptr, false}), id({nullptr, true}));
}

TEST_F(StreamClockTest, EachThreadHasAStreamOfItsOwn) {
  const StreamId mine = id({nullptr, true});
  StreamId others = 0;
  const CUcontext current = context();
  std::thread other{[&] {
    GIVEN(driver().cuCtxSetCurrent(current));
    others = id({nullptr, true});
    EXPECT_EQ(id({nullptr, true}), others);
  }};
  other.join();
  EXPECT_NE(mine, others);
}

TEST_F(StreamClockTest, AStreamThatTheDriverDoesNotKnowHasNoState) {
  HeldStream gone = held();
  CUstream handle = nullptr;
  GIVEN(driver().cuStreamCreate(&handle, 0));
  GIVEN(driver().cuStreamDestroy(handle));
  EXPECT_EQ(clock->table().find({handle, false}), nullptr);
}

TEST_F(StreamClockTest, AFreeIsDoneOnceItsStreamIsPastIt) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  EXPECT_FALSE(clock->is_done(ticket));
  clock->look(ticket.stream);
  EXPECT_FALSE(clock->is_done(ticket)) << "the stream still waits";
  EXPECT_FALSE(clock->wait(ticket, in_ms(20)));
  stream.release();
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
}

TEST_F(StreamClockTest, AMarkCoversOnlyWhatWasFreedBeforeIt) {
  HeldStream stream = held();
  const FreeTicket first = free_on(stream.name());
  ASSERT_TRUE(clock->wait(first, in_ms(20'000)));
  stream.hold();
  const FreeTicket second = free_on(stream.name());
  clock->look(second.stream);
  EXPECT_FALSE(clock->is_done(second));
  EXPECT_TRUE(clock->is_done(first));
}

// A mark behind a free can be left only at the free, and memory may run short later.
TEST_F(StreamClockTest, FreesOfMuchMemoryLeaveAMark) {
  const StreamName legacy_stream{};
  HeldStream stream = held();
  for (const StreamName& name : {stream.name(), legacy_stream}) {
    for (int i = 0; i < 3; ++i) free_on(name, 12 * MiB);
    EXPECT_EQ(state(name).marks.size(), 1U) << "36 MiB";
    free_on(name, 12 * MiB);
    EXPECT_EQ(state(name).marks.size(), 1U) << "48 MiB";
  }
  stream.hold();
  HeldStream other = held();
  const FreeTicket large = free_on(stream.name(), 40 * MiB);
  EXPECT_TRUE(clock->can_follow(large, id(other.name())));
  stream.release();
}

TEST_F(StreamClockTest, AnAllocationLeavesNoMarkOnTheLegacyStream) {
  const StreamName legacy_stream{};
  const FreeTicket freed = free_on(legacy_stream);
  clock->mark_own(freed.stream);
  EXPECT_TRUE(state(legacy_stream).marks.empty());
  HeldStream other = held();
  const FreeTicket freed_there = free_on(other.name());
  clock->mark_own(freed_there.stream);
  EXPECT_EQ(state(other.name()).marks.size(), 1U);
}

TEST_F(StreamClockTest, AStreamIsBeforeItself) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  EXPECT_TRUE(clock->is_before(ticket, id(stream.name())));
  HeldStream other = held();
  EXPECT_FALSE(clock->is_before(ticket, id(other.name())));
}

TEST_F(StreamClockTest, WaitingForAnEventOrdersWhatWasFreedBeforeIt) {
  HeldStream from = held();
  HeldStream to = held();
  from.hold();
  const FreeTicket early = free_on(from.name());
  const GivenEvent event;
  record(event, from.name());
  const FreeTicket late = free_on(from.name());
  wait(to.name(), event);
  EXPECT_TRUE(clock->is_before(early, id(to.name())));
  EXPECT_FALSE(clock->is_before(late, id(to.name())));
}

TEST_F(StreamClockTest, OrderIsPassedOnFromStreamToStream) {
  HeldStream a = held();
  HeldStream b = held();
  HeldStream c = held();
  a.hold();
  const FreeTicket ticket = free_on(a.name());
  const GivenEvent first, second;
  record(first, a.name());
  wait(b.name(), first);
  record(second, b.name());
  wait(c.name(), second);
  EXPECT_TRUE(clock->is_before(ticket, id(c.name())));
}

TEST_F(StreamClockTest, AnAllocationOnTheLegacyStreamIsBehindWhatBlockingStreamsFreed) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  HeldStream alone = held();
  const StreamName on_legacy{};
  blocking.hold();
  alone.hold();
  const FreeTicket ticket = free_on(blocking.name());
  const FreeTicket of_alone = free_on(alone.name());
  EXPECT_FALSE(clock->is_before(ticket, id(on_legacy))) << "nothing of it is there to wait";

  allocate_on(on_legacy);

  EXPECT_TRUE(clock->is_before(ticket, id(on_legacy)));
  EXPECT_FALSE(clock->is_before(of_alone, id(on_legacy)));
  blocking.release();
}

TEST_F(StreamClockTest, AnAllocationBehindLegacyWorkIsDoneOnceThatWorkIs) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  hold_legacy();
  const FreeTicket ticket = free_on({});
  {
    StreamClock::Operation operation{*clock, state(blocking.name()),
                                     StreamClock::Operation::Kind::Allocation};
    EXPECT_TRUE(clock->is_before(ticket, id(blocking.name())));
    EXPECT_CUDA(operation.granted_behind_others());
  }
  EXPECT_CUDA(driver().cuStreamQuery(blocking)) << "an event is no work of its stream";
  EXPECT_FALSE(operations_are_done(blocking.name()));
  {
    const StreamClock::PlacedOperations operations{*clock, blocking.name()};
    free_on(blocking.name());
    release_legacy();
    EXPECT_CUDA(operations.wait());
    EXPECT_TRUE(operations.are_done());
  }
  EXPECT_TRUE(operations_are_done(blocking.name()));
}

// A release of a primary context that other holders keep must not shorten other threads' waits.
TEST_F(StreamClockTest, AFreeBehindLegacyWorkIsNotDoneBecauseItsContextMightEnd) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  hold_legacy();
  free_on(blocking.name());
  clock->context_ends(context());
  EXPECT_FALSE(operations_are_done(blocking.name()));
  clock->context_stays(context());
  EXPECT_FALSE(operations_are_done(blocking.name()));
  release_legacy();
}

// Natively such memory may be used at once, so waiting for the stream must not wait for the legacy
// stream either.
TEST_F(StreamClockTest, AnAllocationOfMemoryThatNothingUsesIsDoneAtOnce) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  hold_legacy();
  allocate_on(blocking.name());
  EXPECT_TRUE(operations_are_done(blocking.name()));
  // It does not cover a later free.
  free_on(blocking.name());
  EXPECT_FALSE(operations_are_done(blocking.name()));
  release_legacy();
}

TEST_F(StreamClockTest, AFreeOnABlockingStreamIsNotDoneBeforeTheLegacyWorkAheadOfIt) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  allocate_on(blocking.name());
  hold_legacy();

  const FreeTicket ticket = free_on(blocking.name());

  EXPECT_FALSE(operations_are_done(blocking.name()));
  EXPECT_FALSE(clock->wait(ticket, in_ms(20)));
  release_legacy();
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
  EXPECT_TRUE(operations_are_done(blocking.name()));
}

// The driver reports the stream as idle, which proves nothing about the frees behind the barrier.
TEST_F(StreamClockTest, AnIdleStreamIsNotProofOfFreesBehindTheLegacyStream) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  hold_legacy();
  free_on(blocking.name());
  const FreeTicket later = free_on(blocking.name());
  EXPECT_CUDA(driver().cuStreamQuery(blocking));
  clock->ask_about_frees(0);
  EXPECT_FALSE(clock->is_done(later));
  release_legacy();
  EXPECT_TRUE(clock->wait(later, in_ms(20'000)));
}

// Until the first operation has left its barrier, another thread's cannot rely on it.
TEST_F(StreamClockTest, AnOperationAmidAnotherIsNotDoneBeforeTheLegacyWorkAheadOfIt) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  allocate_on(blocking.name());
  hold_legacy();
  StreamClock::Operation first{*clock, state(blocking.name()), StreamClock::Operation::Kind::Free};
  free_on(blocking.name());

  EXPECT_FALSE(operations_are_done(blocking.name()));

  const FreeTicket last = first.freed();
  EXPECT_FALSE(operations_are_done(blocking.name()));
  release_legacy();
  EXPECT_TRUE(clock->wait(last, in_ms(20'000)));
  EXPECT_TRUE(operations_are_done(blocking.name()));
}

TEST_F(StreamClockTest, ABarrierThatIsLeftLateDoesNotHideALaterOne) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  allocate_on(blocking.name());
  hold_legacy();
  StreamClock::Operation first{*clock, state(blocking.name()), StreamClock::Operation::Kind::Free};
  const GivenEvent behind;
  GIVEN(driver().cuEventRecord(behind, blocking));
  release_legacy();
  GIVEN(driver().cuEventSynchronize(behind));  // so that the first barrier has been reached
  hold_legacy();
  free_on(blocking.name());
  const FreeTicket last = first.freed();

  EXPECT_FALSE(operations_are_done(blocking.name()));

  release_legacy();
  EXPECT_TRUE(clock->wait(last, in_ms(20'000)));
  EXPECT_TRUE(operations_are_done(blocking.name()));
}

TEST_F(StreamClockTest, OperationsCostNoEventWhileTheOtherSideIsIdle) {
  static std::atomic<int> records{0};
  static const Driver* real = nullptr;
  real = &driver();
  Driver counting = driver();
  counting.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
    ++records;
    return real->cuEventRecord(event, stream);
  };
  StreamClock counted{counting, program()};
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  legacy.legacy_submitted();
  free_on(counted, blocking.name());
  records = 0;

  for (int i = 0; i < 10; ++i) free_on(counted, blocking.name());
  EXPECT_EQ(records.load(), 0);
  legacy.legacy_submitted();
  free_on(counted, blocking.name());
  EXPECT_EQ(records.load(), 1);

  sees_everything = false;
  free_on(counted, blocking.name());
  EXPECT_EQ(records.load(), 2) << "work that nobody saw may lie there";
}

// It may stand for a later record that no hook reported.
TEST_F(StreamClockTest, AnEventProvesNothingOnceCallsMayBeUnseen) {
  HeldStream freeing = held();
  HeldStream asking = held();
  freeing.hold();
  const FreeTicket freed = free_on(freeing.name());
  const GivenEvent event;
  record(event, freeing.name());
  const EventPlaces::Recorded recorded = clock->events().last_record(event);
  sees_everything = false;
  GIVEN(driver().cuEventRecord(event, asking));  // unseen

  wait(asking.name(), event);
  EXPECT_FALSE(clock->is_before(freed, id(asking.name())));
  GIVEN(driver().cuEventSynchronize(event));
  EXPECT_FALSE(clock->is_reached(event, recorded, StreamTable::Told::ByAWait));
  EXPECT_FALSE(clock->is_done(freed));

  record(event, freeing.name());
  EXPECT_TRUE(clock->events().last_record(event).place.empty());
}

TEST_F(StreamClockTest, AnOperationThatTheStreamRefusesFails) {
  Driver refusing = driver();
  refusing.cuEventRecord = [](CUevent, CUstream) -> CUresult { return CUDA_ERROR_OUT_OF_MEMORY; };
  StreamClock refused{refusing, program()};
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  legacy.legacy_submitted();
  StreamState& there = *refused.table().find(blocking.name());
  const StreamClock::Operation free{refused, there, StreamClock::Operation::Kind::Free};
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, free.answer());
  StreamClock::Operation allocation{refused, there, StreamClock::Operation::Kind::Allocation};
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, allocation.granted_behind_others());
  EXPECT_EQ(there.tick.load(), 0U);
  EXPECT_FALSE(there.has_barrier.load());
}

// The driver's answer about the stream does not cover a barrier, so a thread that asks, and knows
// of the free, must find it.
TEST_F(StreamClockTest, NoThreadSeesAFreeBeforeItsBarrier) {
  const GivenStream blocking{CU_STREAM_DEFAULT};
  const StreamName name{.handle = blocking};
  StreamState& there = state(name);
  hold_legacy();
  StreamClock::Operation free{*clock, there, StreamClock::Operation::Kind::Free};
  std::thread freeing;
  {
    const Holding no_new_marks{there.lock};
    freeing = std::thread{[&] { free.freed(); }};
    for (const auto until = in_ms(100); there.tick.load() == 0 && now_ns() < until;) ::usleep(100);
    EXPECT_TRUE(there.tick.load() == 0 || there.has_barrier.load());
  }
  freeing.join();
  EXPECT_EQ(there.tick.load(), 1U);
  EXPECT_FALSE(operations_are_done(name));
  release_legacy();
}

// Other threads cannot name the stream, and a mark on the legacy stream would hold up other work.
TEST_F(StreamClockTest, EachFreeOnAThreadsOwnStreamLeavesAMark) {
  FreeTicket ticket;
  const CUcontext current = context();
  std::thread other{[&] {
    GIVEN(driver().cuCtxSetCurrent(current));
    ticket = free_on({.handle = CU_STREAM_PER_THREAD});
  }};
  other.join();
  captures.began();  // so that no stream can be queried
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
  captures.ended();
}

TEST_F(StreamClockTest, MarksAreBoundedOnAStalledStream) {
  HeldStream stream = held();
  stream.hold();
  StreamState& there = state(stream.name());
  FreeTicket last;
  for (int i = 0; i < 1000; ++i) {
    there.marks_wanted = 1;
    last = free_on(stream.name());
  }
  EXPECT_LE(there.marks.size(), 65U);
  EXPECT_LE(there.marks.size() + there.spare_events.size(), 130U);
  stream.release();
  EXPECT_TRUE(clock->wait(last, in_ms(20'000)));
}

// A thread's cached list of a context's streams is invalid once a stream comes or goes.
TEST_F(StreamClockTest, TheLegacyStreamComesAfterStreamsCreatedLater) {
  const StreamName legacy_stream{};
  EXPECT_TRUE(clock->place_on(legacy_stream).empty());
  HeldStream early = held(CU_STREAM_DEFAULT);
  const FreeTicket first = free_on(early.name());
  EXPECT_EQ(clock->place_on(legacy_stream), StreamClock::Place{first});
  HeldStream late = held(CU_STREAM_DEFAULT);
  const FreeTicket second = free_on(late.name());
  const StreamClock::Place both = clock->place_on(legacy_stream);
  EXPECT_EQ(both.size(), 2U);
  EXPECT_NE(std::find(both.begin(), both.end(), first), both.end());
  EXPECT_NE(std::find(both.begin(), both.end(), second), both.end());
  clock->stream_ends(late);
  EXPECT_EQ(clock->place_on(legacy_stream).size(), 1U)
      << "its marks tell of a stream that has ended";
}

TEST_F(StreamClockTest, TheLegacyStreamComesAfterHoweverManyStreams) {
  std::vector<CUstream> streams(40);
  for (CUstream& stream : streams) GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  for (CUstream stream : streams) free_on({.handle = stream});
  EXPECT_EQ(clock->place_on({}).size(), streams.size());
  GIVEN(driver().cuCtxSynchronize_v2000());
  clock->horizon_of(context()).reached();
  EXPECT_TRUE(clock->place_on({}).empty());
  for (CUstream stream : streams) {
    clock->stream_ends(stream);
    EXPECT_CUDA(driver().cuStreamDestroy(stream));
  }
}

TEST_F(StreamClockTest, WhatTheProgramWaitedForIsDone) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket before = free_on(stream.name());
  const Horizon horizon = clock->horizon_of(stream.name());
  const FreeTicket after = free_on(stream.name());
  stream.release();
  GIVEN(driver().cuStreamSynchronize(stream));
  horizon.reached();
  EXPECT_TRUE(clock->is_done(before));
  EXPECT_FALSE(clock->is_done(after)) << "freed after the wait had begun";
}

TEST_F(StreamClockTest, ACompletedEventProvesItsStreamsFrees) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  const GivenEvent event;
  record(event, stream.name());
  stream.release();
  GIVEN(driver().cuEventSynchronize(event));
  clock->is_reached(event, clock->events().last_record(event), StreamTable::Told::ByTheDevice);
  EXPECT_TRUE(clock->is_done(ticket));
}

TEST_F(StreamClockTest, AFreeDuringARecordMayBeBehindTheEvent) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket before = free_on(stream.name());
  const GivenEvent event;
  FreeTicket after;
  {
    EventPlaces::Recording recording{clock->events(), event};
    StreamClock::Place place = clock->place_on(stream.name());
    GIVEN(driver().cuEventRecord(event, stream));
    after = free_on(stream.name());  // by another thread
    clock->event_recorded(recording, stream.name(), std::move(place));
  }
  stream.release();
  GIVEN(driver().cuEventSynchronize(event));
  clock->is_reached(event, clock->events().last_record(event), StreamTable::Told::ByTheDevice);
  EXPECT_TRUE(clock->is_done(before));
  EXPECT_FALSE(clock->is_done(after));
}

TEST_F(StreamClockTest, AStreamFollowsAnotherWithoutAHostWait) {
  HeldStream first = held();
  HeldStream second = held();
  first.hold();
  const FreeTicket unmarked = free_on(first.name());
  clock->look(unmarked.stream);
  const FreeTicket ticket = free_on(first.name());
  const StreamId asker = id(second.name());
  EXPECT_FALSE(clock->is_before(ticket, asker));
  EXPECT_TRUE(clock->can_follow(ticket, asker));
  EXPECT_TRUE(clock->follow(ticket, asker));
  EXPECT_TRUE(clock->is_before(ticket, asker));
  EXPECT_FALSE(clock->is_done(ticket));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second)) << "it waits on the device";
  EXPECT_FALSE(clock->is_before(free_on(first.name()), asker)) << "freed since";
  first.release();
  EXPECT_CUDA(driver().cuStreamSynchronize(second));
}

// A later mark covers work that the asking stream may have to precede.
TEST_F(StreamClockTest, NoStreamFollowsAFreeByALaterMark) {
  HeldStream first = held();
  HeldStream second = held();
  first.hold();
  const FreeTicket unmarked = free_on(first.name());
  clock->look(unmarked.stream);
  free_on(first.name());
  EXPECT_FALSE(clock->can_follow(unmarked, id(second.name())));
  EXPECT_FALSE(clock->follow(unmarked, id(second.name())));
  EXPECT_CUDA(driver().cuStreamQuery(second));
}

TEST_F(StreamClockTest, NoStreamFollowsAnotherBesideACapture) {
  HeldStream first = held();
  HeldStream second = held();
  first.hold();
  clock->look(free_on(first.name()).stream);
  const FreeTicket ticket = free_on(first.name());
  captures.began();
  EXPECT_FALSE(clock->can_follow(ticket, id(second.name())));
  EXPECT_FALSE(clock->follow(ticket, id(second.name())));
  captures.ended();
  EXPECT_FALSE(clock->is_before(ticket, id(second.name())));
}

TEST_F(StreamClockTest, AnEventRecordedByOthersProvesNothing) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  const GivenEvent event;
  record(event, stream.name());
  clock->events().recorded_unseen(event);
  clock->is_reached(event, clock->events().last_record(event), StreamTable::Told::ByTheDevice);
  EXPECT_FALSE(clock->is_done(ticket));
}

TEST_F(StreamClockTest, AllWorkOfAContextIsWaitedFor) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  HeldStream alone = held();
  clock->table().find(alone.name());
  blocking.hold();
  EXPECT_FALSE(clock->wait_for_all(context(), in_ms(20)));
  blocking.release();
  alone.hold();
  EXPECT_FALSE(clock->wait_for_all(context(), in_ms(20)));
  alone.release();
  EXPECT_TRUE(clock->wait_for_all(context(), in_ms(20'000)));
}

TEST_F(StreamClockTest, LooksWithoutBreakingACapture) {
  HeldStream captured = held();
  HeldStream other = held();
  const FreeTicket ticket = free_on(other.name());
  const FreeTicket of_captured = free_on(captured.name());
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
  captures.began();
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
  EXPECT_FALSE(clock->wait(of_captured, in_ms(20)));
  clock->look(of_captured.stream);
  EXPECT_FALSE(clock->is_done(of_captured)) << "nothing may be recorded on a stream being captured";
  EXPECT_EQ(capture_status(captured), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  GIVEN(driver().cuStreamEndCapture(captured, &graph));
  captures.ended();
  const GivenGraph ended{graph};
  EXPECT_TRUE(clock->wait(of_captured, in_ms(20'000)));
}

}  // namespace
}  // namespace cuvmm::test
