// SPDX-License-Identifier: Apache-2.0
// Streams and contexts that end while their work goes on and other threads query it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "unit/stream_clock_support.hpp"

namespace cuvmm::test {
namespace {

class StreamEnds : public StreamClockTest {
 protected:
  // Ends a stream that has been forked from a capture and joined again. The capture goes on.
  enum class Fork : std::uint8_t { Reported, Unreported };
  void end_amid_a_capture(CUstream side, CUstream origin, Fork is = Fork::Unreported) {
    const GivenEvent fork;
    const GivenEvent join;
    begin_capture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL);
    captures.began();
    GIVEN(driver().cuEventRecord(fork, origin));
    if (is == Fork::Reported) clock->note_work_before_capture({.handle = side});
    GIVEN(driver().cuStreamWaitEvent(side, fork, 0));
    GIVEN(driver().cuEventRecord(join, side));
    GIVEN(driver().cuStreamWaitEvent(origin, join, 0));
    clock->stream_ends(side);
    EXPECT_EQ(capture_status(origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    const GivenGraph graph = end_capture(origin);
    captures.ended();
  }
  void begin_capture_of(CUstream stream) {
    clock->note_work_before_capture({.handle = stream});
    captures.began();
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
};

TEST_F(StreamEnds, WorkOfAContextIncludesThatOfEndedStreams) {
  HeldStream other = held();
  FreeTicket all;
  {
    HeldStream stream = held();
    clock->table().find(stream.name());
    stream.hold();
    all = clock->ticket_of_all(context());
    clock->stream_ends(stream);
    EXPECT_FALSE(clock->wait(all, in_ms(20))) << "its work runs on";
  }
  EXPECT_TRUE(clock->wait(all, in_ms(20'000)));
}

// The streams of a green context use the memory of the primary one.
TEST_F(StreamEnds, WorkOfAContextIncludesThatOfOtherContextsOnItsDevice) {
  const CUcontext freeing = context();
  const OwnContext other;
  const CUcontext using_it = context();
  FreeTicket all;
  {
    HeldStream stream = held();
    const Current current{freeing};
    clock->table().find(stream.name());
    stream.hold();
    all = clock->ticket_of_all(freeing);
    EXPECT_FALSE(clock->wait(all, in_ms(20))) << "the work of the stream runs on";
    clock->stream_ends(stream);
    all = clock->ticket_of_all(freeing);
    EXPECT_FALSE(clock->wait(all, in_ms(20))) << "the work of the ended stream runs on";
  }
  EXPECT_TRUE(clock->wait(all, in_ms(20'000)));
  clock->context_ended(using_it);
}

TEST_F(StreamEnds, WhatIsFreedAfterAStreamEndedComesAfterItsWorkToo) {
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    FreeTicket all;
    {
      HeldStream stream = held(flags);
      clock->table().find(stream.name());
      stream.hold();
      clock->stream_ends(stream);
      all = clock->ticket_of_all(context());
      EXPECT_FALSE(clock->wait(all, in_ms(20))) << "its work runs on";
    }
    EXPECT_TRUE(clock->wait(all, in_ms(20'000)));
  }
}

TEST_F(StreamEnds, WaitingForAContextCoversEndedStreams) {
  FreeTicket freed;
  {
    HeldStream stream = held();
    stream.hold();
    freed = free_on(stream.name());
    clock->stream_ends(stream);
  }
  const Horizon horizon = clock->horizon_of(context());
  GIVEN(driver().cuCtxSynchronize_v2000());
  EXPECT_FALSE(clock->is_done(freed)) << "nobody has said so";
  horizon.waited_for();
  EXPECT_TRUE(clock->is_done(freed));
  EXPECT_TRUE(clock->table().ended_of(context()).empty());
}

// A stream's record is reused after the stream has ended: a wait that covered the old stream says
// nothing about the new one.
TEST_F(StreamEnds, AnOldWaitDoesNotCoverALaterStream) {
  const StreamState* record = nullptr;
  std::optional<Horizon> horizon;
  {
    HeldStream stream = held();
    record = &state(stream.name());
    stream.hold();
    for (int i = 0; i < 10; ++i) free_on(stream.name());
    horizon.emplace(clock->horizon_of(context()));
    clock->stream_ends(stream);
  }
  GIVEN(driver().cuCtxSynchronize_v2000());
  clock->horizon_of(context()).waited_for();
  for (int i = 0; i < 256; ++i) {
    const GivenStream other;
    state({.handle = other});
    clock->stream_ends(other);
  }
  HeldStream next = held();
  ASSERT_EQ(&state(next.name()), record);
  next.hold();
  const FreeTicket freed = free_on(next.name());

  horizon->waited_for();

  EXPECT_FALSE(clock->is_done(freed));
}

TEST_F(StreamEnds, AFreeThatStaysUnfinishedKeepsNoOtherRecords) {
  HeldStream first = held();
  first.hold();
  free_on(first.name());
  clock->stream_ends(first);
  std::set<const StreamState*> records;
  for (int i = 0; i < 1000; ++i) {
    const GivenStream other;
    records.insert(&state({.handle = other}));
    clock->stream_ends(other);
  }
  EXPECT_LT(records.size(), 300u);
}

// Memory that a stream was granted may still be in use by what the stream had waited for.
TEST_F(StreamEnds, WhatAStreamHadWaitedForOutlivesItsRecord) {
  HeldStream freeing = held();
  freeing.hold();
  free_on(freeing.name());
  const GivenEvent event;
  record(event, freeing.name());
  StreamId ended = no_stream;
  {
    const GivenStream granted;
    ended = id({.handle = granted});
    wait({.handle = granted}, event);
    allocate_on({.handle = granted});
    clock->stream_ends(granted);
  }
  const auto end_others = [&] {
    for (int i = 0; i < 600; ++i) {
      const GivenStream other;
      clock->table().find({.handle = other});
      clock->stream_ends(other);
    }
  };
  end_others();
  const FreeTicket freed = clock->ticket_of_allocation(ended);
  EXPECT_FALSE(clock->is_done(freed)) << "the first stream's work runs on";
  freeing.release();
  EXPECT_TRUE(clock->wait(freed, in_ms(20'000)));
  end_others();
  EXPECT_EQ(clock->table().by_id(ended), nullptr) << "nothing depends on the record any more";
}

TEST_F(StreamEnds, RecordsOfStreamsThatHadWaitedForUnfinishedWorkDoNotAccumulate) {
  const GivenStream freeing;
  const GivenEvent event;
  std::set<const StreamState*> records;
  for (int i = 0; i < 2000; ++i) {
    free_on({.handle = freeing});
    record(event, {.handle = freeing});
    const GivenStream waiting;
    records.insert(&state({.handle = waiting}));
    wait({.handle = waiting}, event);
    clock->stream_ends(waiting);
  }
  EXPECT_LT(records.size(), 600u);
}

// The driver is done with an idle blocking stream before the legacy stream's work has run.
TEST_F(StreamEnds, AStreamThatEndsWithoutAnEventStillComesAfterTheLegacyStream) {
  Driver refusing = driver();
  static std::atomic<bool> refuses{false};
  refuses = false;
  static const Driver* real = nullptr;
  real = &driver();
  refusing.cuEventRecord = [](CUevent event, CUstream stream) {
    return refuses ? CUDA_ERROR_OUT_OF_MEMORY : real->cuEventRecord(event, stream);
  };
  StreamClock refused{refusing, program()};
  FreeTicket freed;
  hold_legacy();
  {
    const GivenStream blocking{CU_STREAM_DEFAULT};
    freed = free_on(refused, {.handle = blocking});
    refuses = true;
    refused.stream_ends(blocking);
    refuses = false;
  }
  EXPECT_FALSE(refused.wait(freed, in_ms(20)));
  release_legacy();
  EXPECT_TRUE(refused.wait(freed, in_ms(20'000)));
}

// Nobody but the waiting stream asks about the streams that it follows.
TEST_F(StreamEnds, WhatAStreamHasLearntFromEndedOnesIsForgotten) {
  const GivenStream waiting;
  const StreamState& later = state({.handle = waiting});
  const GivenEvent event;
  std::set<const StreamState*> records;
  for (int i = 0; i < 2000; ++i) {
    const GivenStream stream;
    records.insert(&state({.handle = stream}));
    free_on({.handle = stream});
    record(event, {.handle = stream});
    wait({.handle = waiting}, event);
    clock->stream_ends(stream);
    GIVEN(driver().cuStreamSynchronize(waiting));
    ASSERT_LT(later.known.size(), 200u) << i;
  }
  EXPECT_LT(records.size(), 500u);
}

// Destroying an event waits while a cuMemFree waits in another thread (measured), and registering a
// stream is part of calls that never wait.
TEST_F(StreamEnds, EventsOfEndedStreamsAreReusedAndNotDestroyed) {
  static std::atomic<int> made{0};
  static std::atomic<int> destroyed{0};
  static const Driver* real = nullptr;
  real = &driver();
  Driver watched = driver();
  watched.cuEventCreate = [](CUevent* event, unsigned flags) -> CUresult {
    ++made;
    return real->cuEventCreate(event, flags);
  };
  watched.cuEventDestroy = [](CUevent event) -> CUresult {
    ++destroyed;
    return real->cuEventDestroy(event);
  };
  StreamClock watching{watched, program()};
  watching.context_began(context());
  made = 0;
  destroyed = 0;
  constexpr int streams = 2000;
  for (int i = 0; i < streams; ++i) {
    const GivenStream stream;
    watching.table().find({.handle = stream})->marks_wanted = 1;
    free_on(watching, {.handle = stream});
    watching.stream_ends(stream);
    GIVEN(driver().cuCtxSynchronize_v2000());
    watching.horizon_of(context()).reached();
  }
  EXPECT_EQ(destroyed.load(), 0);
  EXPECT_LT(made.load(), streams) << "those of the first streams are used again";
}

// A thread that lacks memory queries streams, whatever other threads do with them.
TEST_F(StreamEnds, AnEndedStreamIsNotPassedToTheDriver) {
  static std::atomic<int> questions{0};
  static std::atomic<CUstream> ended{nullptr};
  static std::atomic<bool> was_named{false};
  static const Driver* real = nullptr;
  questions = 0;
  ended = nullptr;
  was_named = false;
  real = &driver();
  Driver watched = driver();
  // A query of all work starts with the legacy stream: slowly, while the other stream exists.
  watched.cuStreamQuery = [](CUstream stream) -> CUresult {
    if (stream == CU_STREAM_LEGACY) {
      ++questions;
      for (int ms = 0; ms < 200 && ended.load() == nullptr; ++ms) usleep(1000);
    }
    if (stream == ended.load()) was_named = true;
    return real->cuStreamQuery(stream);
  };
  StreamClock watching{watched, program()};
  HeldStream stream = held();
  watching.table().find(stream.name());
  const CUcontext here = context();
  const auto ask_all = [&] {
    GIVEN(driver().cuCtxSetCurrent(here));
    watching.is_all_done(here);
  };
  // While the first query waits, the stream ends, and a second query starts that has still seen it
  // alive.
  std::thread first{ask_all};
  while (questions.load() == 0) usleep(1000);
  std::thread ender{[&] {
    GIVEN(driver().cuCtxSetCurrent(here));
    watching.stream_ends(stream);
    ended = stream;
  }};
  usleep(50'000);
  std::thread second{ask_all};
  for (std::thread* one : {&first, &ender, &second}) one->join();
  EXPECT_EQ(questions.load(), 2);
  EXPECT_FALSE(was_named.load());
}

// The context's events end with it.
TEST_F(StreamEnds, NothingOfAnEndingContextIsPassedToTheDriver) {
  static std::atomic<int> named{0};
  static const Driver* real = nullptr;
  real = &driver();
  Driver watched = driver();
  watched.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
    ++named;
    return real->cuEventRecord(event, stream);
  };
  watched.cuEventQuery = [](CUevent event) -> CUresult {
    ++named;
    return real->cuEventQuery(event);
  };
  watched.cuStreamQuery = [](CUstream one) -> CUresult {
    ++named;
    return real->cuStreamQuery(one);
  };
  StreamClock watching{watched, program()};
  HeldStream stream = held();
  stream.hold();
  watching.table().find(stream.name())->marks_wanted = 1;
  const FreeTicket marked = free_on(watching, stream.name());
  const FreeTicket all = watching.ticket_of_all(context());
  named = 0;
  watching.context_ends(context());
  stream.release();
  EXPECT_FALSE(watching.wait(marked, in_ms(20)));
  EXPECT_FALSE(watching.wait(all, in_ms(20)));
  EXPECT_EQ(named.load(), 0);
  watching.context_stays(context());
  EXPECT_TRUE(watching.wait(marked, in_ms(20'000)));
  EXPECT_TRUE(watching.wait(all, in_ms(20'000)));
}

TEST_F(StreamEnds, AContextMightEndUntilEachCallThatMayEndItHasReturned) {
  HeldStream stream = held();
  HeldStream next = held();
  const StreamState& earlier = state(stream.name());
  clock->context_ends(context());
  const StreamState& later = state(next.name());
  clock->context_ends(context());
  EXPECT_TRUE(earlier.context_ends.load());
  EXPECT_TRUE(later.context_ends.load());
  clock->context_stays(context());
  EXPECT_TRUE(earlier.context_ends.load());
  EXPECT_TRUE(later.context_ends.load());
  clock->context_stays(context());
  EXPECT_FALSE(earlier.context_ends.load());
  EXPECT_FALSE(later.context_ends.load());
}

// Natively the legacy stream does not wait for more because a stream ends.
TEST_F(StreamEnds, TheEndOfABlockingStreamAddsNoLegacyWork) {
  FreeTicket ticket;
  HeldStream running = held(CU_STREAM_DEFAULT);
  running.hold();
  {
    HeldStream stream = held(CU_STREAM_DEFAULT);
    stream.hold();
    ticket = free_on(stream.name());
    clock->stream_ends(stream);
    EXPECT_FALSE(clock->is_before(ticket, id({.handle = CU_STREAM_LEGACY})));
    const GivenStream another{CU_STREAM_DEFAULT};
    const GivenEvent event;
    GIVEN(driver().cuEventRecord(event, another));
    EXPECT_CUDA(driver().cuEventSynchronize(event)) << "it would wait for the legacy stream";
  }
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
}

TEST_F(StreamEnds, AThreadThatEndsLeavesItsStreamToBeForgotten) {
  const CUcontext current = context();
  FreeTicket ticket;
  std::thread other{[&] {
    GIVEN(driver().cuCtxSetCurrent(current));
    ticket = free_on({.handle = CU_STREAM_PER_THREAD});
  }};
  other.join();
  const auto streams = clock->table().of_context(current);
  EXPECT_TRUE(std::none_of(streams.begin(), streams.end(),
                           [&](const StreamState* stream) { return stream->id == ticket.stream; }));
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
}

TEST_F(StreamEnds, MemoryOfAThreadsStreamIsFreedAfterTheThreadHasEnded) {
  const CUcontext current = context();
  StreamId stream = no_stream;
  std::thread other{[&] {
    GIVEN(driver().cuCtxSetCurrent(current));
    const auto work = [](void*) { ::usleep(50'000); };
    GIVEN(driver().cuLaunchHostFunc(CU_STREAM_PER_THREAD, work, nullptr));
    stream = free_on({.handle = CU_STREAM_PER_THREAD}).stream;
  }};
  other.join();
  const FreeTicket unmarked = clock->table().by_id(stream)->ticket();
  const FreeTicket freed = clock->ticket_of_allocation(stream);
  EXPECT_FALSE(clock->is_done(freed));
  EXPECT_TRUE(clock->wait(freed, in_ms(20'000)));
  EXPECT_TRUE(clock->wait(unmarked, in_ms(20'000)));
}

TEST_F(StreamEnds, AnEndedStreamsWorkIsWaitedFor) {
  FreeTicket ticket;
  {
    HeldStream stream = held();
    stream.hold();
    ticket = free_on(stream.name());
    EXPECT_FALSE(clock->is_done(ticket));
    clock->stream_ends(stream);
    EXPECT_FALSE(clock->is_done(ticket));
  }
  EXPECT_TRUE(clock->wait(ticket, in_ms(20'000)));
}

TEST_F(StreamEnds, FreesInAnEndedContextAreDone) {
  FreeTicket ticket;
  {
    OwnContext own;
    CUstream stream = nullptr;
    GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ticket = free_on({stream, false});
    clock->look(ticket.stream);
    const CUcontext ended = own.get();
    GIVEN(own.destroy());
    clock->context_ended(ended);
  }
  EXPECT_TRUE(clock->is_done(ticket));
}

TEST_F(StreamEnds, AFreeThatIsUnderWayWhenItsContextEndsIsDone) {
  OwnContext own;
  CUstream stream = nullptr;
  GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  StreamClock::Operation operation{*clock, state({stream, false}),
                                   StreamClock::Operation::Kind::Free};
  const CUcontext ended = own.get();
  GIVEN(own.destroy());
  clock->context_ended(ended);
  EXPECT_TRUE(clock->is_done(operation.freed()));
}

// Before the table is told that a context has ended, a new stream may get the handle of one that
// ended with it.
TEST_F(StreamEnds, ANewStreamDoesNotInheritTheRecordOfItsHandle) {
  HeldStream stream = held();
  const FreeTicket of_the_old = free_on(stream.name());
  clock->context_ends(context());

  clock->table().stream_began(stream);

  const StreamState& record = state(stream.name());
  EXPECT_NE(record.id, of_the_old.stream);
  EXPECT_EQ(record.tick.load(), 0U);
  EXPECT_FALSE(clock->is_done(of_the_old));
  clock->context_ended(context());
  EXPECT_TRUE(clock->is_done(of_the_old));
}

TEST_F(StreamEnds, AStreamThatEndsAmidACaptureDoesNotBreakIt) {
  HeldStream origin = held();
  HeldStream side = held();
  clock->table().find(side.name());
  end_amid_a_capture(side, origin);
}

TEST_F(StreamEnds, AnIdleStreamThatEndsAmidACaptureLeavesNoWork) {
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    HeldStream origin = held(flags);
    HeldStream side = held(flags);
    const FreeTicket freed = free_on(side.name());
    GIVEN(driver().cuStreamSynchronize(side));
    end_amid_a_capture(side, origin, Fork::Reported);
    EXPECT_TRUE(clock->is_all_done(context()));
    EXPECT_TRUE(clock->is_done(freed));
    EXPECT_TRUE(clock->wait(clock->ticket_of_all(context()), in_ms(20'000)));
  }
}

TEST_F(StreamEnds, ThatItWasIdleBeforeAnEarlierCaptureShowsNothing) {
  HeldStream origin = held();
  FreeTicket all;
  {
    HeldStream side = held();
    begin_capture_of(side);
    const GivenGraph earlier = end_capture(side);
    captures.ended();
    side.hold();
    end_amid_a_capture(side, origin, Fork::Reported);
    all = clock->ticket_of_all(context());
    EXPECT_FALSE(clock->wait(all, in_ms(20))) << "its later work runs on";
  }
  const Horizon horizon = clock->horizon_of(context());
  GIVEN(driver().cuCtxSynchronize_v2000());
  horizon.waited_for();
  EXPECT_TRUE(clock->is_done(all));
}

// Another thread may be making the same stream join the capture, which a query would then break.
TEST_F(StreamEnds, ItIsNotAskedForItsWorkWhileAThreadSubmits) {
  HeldStream origin = held();
  HeldStream side = held();
  clock->table().find(side.name());
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_leave{false};
  std::thread submitting{[&] {
    const Gate::Pass pass{gate};
    is_inside = true;
    while (!may_leave) usleep(1000);
  }};
  while (!is_inside) usleep(1000);
  end_amid_a_capture(side, origin, Fork::Reported);
  may_leave = true;
  submitting.join();
  EXPECT_FALSE(clock->is_all_done(context()));
}

// Its work can be marked with no event, so that only a wait for the context tells of it.
TEST_F(StreamEnds, AStreamWithFreesThatEndsAmidACaptureDoesNotBreakIt) {
  HeldStream origin = held();
  FreeTicket freed;
  FreeTicket all;
  {
    HeldStream side = held();
    side.hold();
    freed = free_on(side.name());
    end_amid_a_capture(side, origin);
    all = clock->ticket_of_all(context());
    EXPECT_FALSE(clock->is_all_done(context()));
    EXPECT_FALSE(clock->wait(freed, in_ms(20))) << "its earlier work runs on";
    EXPECT_FALSE(clock->wait(all, in_ms(20))) << "its earlier work runs on";
  }
  const Horizon horizon = clock->horizon_of(context());
  GIVEN(driver().cuCtxSynchronize_v2000());
  horizon.waited_for();
  EXPECT_TRUE(clock->is_done(freed));
  EXPECT_TRUE(clock->is_done(all));
  EXPECT_TRUE(clock->is_all_done(context()));
}

}  // namespace
}  // namespace cuvmm::test
