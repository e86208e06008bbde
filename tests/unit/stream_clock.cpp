// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "contract/streams_support.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm::test {
namespace {

std::uint64_t in_ms(std::uint64_t ms) {
  return now_ns() + ms * 1'000'000;
}

// A stream that does nothing further until it is told to.
class HeldStream {
 public:
  HeldStream(PinnedWords& words, Size index, unsigned flags) : words_(words), index_(index) {
    GIVEN(driver().cuStreamCreate(&stream_, flags));
  }
  ~HeldStream() {
    let_go();
    EXPECT_CUDA(driver().cuStreamDestroy(stream_));
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void hold() {
    CUdeviceptr address = 0;
    GIVEN(driver().cuMemHostGetDevicePointer(&address, words_.data() + index_, 0));
    GIVEN(driver().cuStreamWaitValue32(stream_, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void let_go() { __atomic_store_n(words_.data() + index_, 1U, __ATOMIC_RELEASE); }
  operator CUstream() const { return stream_; }
  StreamName name() const { return {.handle = stream_}; }

 private:
  PinnedWords& words_;
  const Size index_;
  CUstream stream_ = nullptr;
};

class StreamClockTest : public DriverContract {
 protected:
  CUcontext context() {
    CUcontext current = nullptr;
    GIVEN(driver().cuCtxGetCurrent(&current));
    return current;
  }
  StreamState& state(const StreamName& name) { return *clock->table().find(name); }
  StreamId id(const StreamName& name) { return state(name).id; }
  FreeTicket free_on(const StreamName& name) { return StreamClock::ticket(state(name)); }

  HeldStream held(unsigned flags = CU_STREAM_NON_BLOCKING) { return {*words, next_word++, flags}; }

  void SetUp() override {
    DriverContract::SetUp();
    words.emplace(8);
    clock.emplace(driver(), captures);
  }
  void TearDown() override {
    clock.reset();
    words.reset();
    DriverContract::TearDown();
  }

  // Freed at the very end, since that waits for every stream.
  std::optional<PinnedWords> words;
  Size next_word = 0;
  Captures captures;
  std::optional<StreamClock> clock;
};

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

TEST_F(StreamClockTest, AFreeIsDoneOnceItsStreamHasPassedIt) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  EXPECT_FALSE(clock->is_done(ticket));
  clock->look(ticket.stream);
  EXPECT_FALSE(clock->is_done(ticket)) << "the stream still waits";
  EXPECT_FALSE(clock->wait(ticket, in_ms(20)));
  stream.let_go();
  EXPECT_TRUE(clock->wait(ticket, in_ms(10'000)));
}

TEST_F(StreamClockTest, AMarkCoversOnlyWhatWasFreedBeforeIt) {
  HeldStream stream = held();
  const FreeTicket first = free_on(stream.name());
  ASSERT_TRUE(clock->wait(first, in_ms(10'000)));
  stream.hold();
  const FreeTicket second = free_on(stream.name());
  clock->look(second.stream);
  EXPECT_FALSE(clock->is_done(second));
  EXPECT_TRUE(clock->is_done(first));
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
  GIVEN(driver().cuEventRecord(event, from));
  clock->event_recorded(event, from.name(), clock->place_on(from.name()));
  const FreeTicket late = free_on(from.name());
  GIVEN(driver().cuStreamWaitEvent(to, event, 0));
  clock->waited_for_by(to.name(), clock->place_of(event));
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
  GIVEN(driver().cuEventRecord(first, a));
  clock->event_recorded(first, a.name(), clock->place_on(a.name()));
  GIVEN(driver().cuStreamWaitEvent(b, first, 0));
  clock->waited_for_by(b.name(), clock->place_of(first));
  GIVEN(driver().cuEventRecord(second, b));
  clock->event_recorded(second, b.name(), clock->place_on(b.name()));
  GIVEN(driver().cuStreamWaitEvent(c, second, 0));
  clock->waited_for_by(c.name(), clock->place_of(second));
  EXPECT_TRUE(clock->is_before(ticket, id(c.name())));
}

TEST_F(StreamClockTest, LegacyAndBlockingStreamsAreOrdered) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  HeldStream alone = held();
  const StreamName legacy{};
  blocking.hold();
  const FreeTicket ticket = free_on(blocking.name());
  EXPECT_TRUE(clock->is_before(ticket, id(legacy)));
  alone.hold();
  EXPECT_FALSE(clock->is_before(free_on(alone.name()), id(legacy)));
  blocking.let_go();
}

// What a thread has gathered of a context's streams is worth nothing once one comes or goes.
TEST_F(StreamClockTest, TheLegacyStreamComesAfterStreamsThatWereMadeSince) {
  const StreamName legacy{};
  EXPECT_TRUE(clock->place_on(legacy).empty());
  HeldStream early = held(CU_STREAM_DEFAULT);
  const FreeTicket first = free_on(early.name());
  EXPECT_EQ(clock->place_on(legacy), StreamClock::Place{first});
  HeldStream late = held(CU_STREAM_DEFAULT);
  const FreeTicket second = free_on(late.name());
  const StreamClock::Place both = clock->place_on(legacy);
  EXPECT_EQ(both.size(), 2U);
  EXPECT_NE(std::find(both.begin(), both.end(), first), both.end());
  EXPECT_NE(std::find(both.begin(), both.end(), second), both.end());
  clock->stream_ends(late);
  EXPECT_EQ(clock->place_on(legacy).size(), 2U)
      << "it has been told to wait for a stream that ends";
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
  stream.let_go();
  GIVEN(driver().cuStreamSynchronize(stream));
  horizon.reached();
  EXPECT_TRUE(clock->is_done(before));
  EXPECT_FALSE(clock->is_done(after)) << "freed after the wait had begun";
}

TEST_F(StreamClockTest, AnEventOfTheProgramThatIsDoneTellsOfItsStream) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  const GivenEvent event;
  GIVEN(driver().cuEventRecord(event, stream));
  clock->event_recorded(event, stream.name(), clock->place_on(stream.name()));
  stream.let_go();
  GIVEN(driver().cuEventSynchronize(event));
  clock->is_reached(event, clock->place_of(event));
  EXPECT_TRUE(clock->is_done(ticket));
}

TEST_F(StreamClockTest, WhatIsFreedWhileAnEventIsRecordedMayLieBehindIt) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket before = free_on(stream.name());
  const StreamClock::Place place = clock->place_on(stream.name());
  const GivenEvent event;
  GIVEN(driver().cuEventRecord(event, stream));
  const FreeTicket after = free_on(stream.name());  // by another thread
  clock->event_recorded(event, stream.name(), place);
  stream.let_go();
  GIVEN(driver().cuEventSynchronize(event));
  clock->is_reached(event, clock->place_of(event));
  EXPECT_TRUE(clock->is_done(before));
  EXPECT_FALSE(clock->is_done(after));
}

TEST_F(StreamClockTest, AllWorkOfAContextIncludesWhatAStreamLeavesBehind) {
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
  EXPECT_TRUE(clock->wait(all, in_ms(10'000)));
}

TEST_F(StreamClockTest, WhatIsFreedAfterAStreamEndedComesAfterItsWorkToo) {
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
    EXPECT_TRUE(clock->wait(all, in_ms(10'000)));
  }
}

// Marks are made by whoever lacks memory, whatever other threads do with their streams.
TEST_F(StreamClockTest, NoStreamIsNamedToTheDriverOnceItHasEnded) {
  static std::atomic<int> marks{0};
  static std::atomic<CUstream> ended{nullptr};
  static std::atomic<bool> was_named{false};
  static const Driver* real = nullptr;
  marks = 0;
  ended = nullptr;
  was_named = false;
  real = &driver();
  Driver watched = driver();
  // A mark begins with the legacy stream: it is slow, as long as the other has not ended.
  watched.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
    if (stream == CU_STREAM_LEGACY) {
      ++marks;
      for (int ms = 0; ms < 200 && ended.load() == nullptr; ++ms) usleep(1000);
    }
    if (stream == ended.load()) was_named = true;
    return real->cuEventRecord(event, stream);
  };
  StreamClock watching{watched, captures};
  HeldStream stream = held();
  watching.table().find(stream.name());
  const CUcontext here = context();
  const auto look_at_all = [&] {
    GIVEN(driver().cuCtxSetCurrent(here));
    watching.look(watching.ticket_of_all(here).stream);
  };
  // Behind the first mark wait the end of the stream and, having seen it alive, a second one.
  std::thread first{look_at_all};
  while (marks.load() == 0) usleep(1000);
  std::thread ender{[&] {
    GIVEN(driver().cuCtxSetCurrent(here));
    watching.stream_ends(stream);
    ended = stream;
  }};
  usleep(50'000);
  std::thread second{look_at_all};
  for (std::thread* one : {&first, &ender, &second}) one->join();
  EXPECT_EQ(marks.load(), 2);
  EXPECT_FALSE(was_named.load());
}

// Its events go with it.
TEST_F(StreamClockTest, NothingOfAContextIsNamedToTheDriverWhileItEnds) {
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
  StreamClock watching{watched, captures};
  HeldStream stream = held();
  stream.hold();
  const FreeTicket marked = StreamClock::ticket(*watching.table().find(stream.name()));
  watching.look(marked.stream);
  const FreeTicket all = watching.ticket_of_all(context());
  named = 0;
  watching.context_ends(context());
  stream.let_go();
  EXPECT_FALSE(watching.wait(marked, in_ms(20)));
  EXPECT_FALSE(watching.wait(all, in_ms(20)));
  EXPECT_EQ(named.load(), 0);
  watching.context_stays(context());
  EXPECT_TRUE(watching.wait(marked, in_ms(10'000)));
  EXPECT_TRUE(watching.wait(all, in_ms(10'000)));
}

TEST_F(StreamClockTest, TheLegacyStreamStillWaitsForABlockingOneThatEnded) {
  FreeTicket ticket;
  const StreamName legacy{.handle = CU_STREAM_LEGACY};
  {
    HeldStream stream = held(CU_STREAM_DEFAULT);
    stream.hold();
    ticket = free_on(stream.name());
    clock->stream_ends(stream);
    EXPECT_TRUE(clock->is_before(ticket, id(legacy)));
    EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(CU_STREAM_LEGACY));
    captures.began();
    HeldStream another = held(CU_STREAM_DEFAULT);
    another.hold();
    ticket = free_on(another.name());
    clock->stream_ends(another);
    EXPECT_FALSE(clock->is_before(ticket, id(legacy))) << "it could not be told to";
    captures.ended();
  }
  EXPECT_TRUE(clock->wait(ticket, in_ms(10'000)));
}

TEST_F(StreamClockTest, AStreamFollowsAnotherWithoutAnybodyWaiting) {
  HeldStream first = held();
  HeldStream second = held();
  first.hold();
  const FreeTicket ticket = free_on(first.name());
  const StreamId asker = id(second.name());
  EXPECT_FALSE(clock->is_before(ticket, asker));
  EXPECT_TRUE(clock->follow(ticket.stream, asker));
  EXPECT_TRUE(clock->is_before(ticket, asker));
  EXPECT_FALSE(clock->is_done(ticket));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuStreamQuery(second)) << "it waits on the device";
  EXPECT_FALSE(clock->follow(ticket.stream, asker)) << "as it did before";
  EXPECT_FALSE(clock->is_before(free_on(first.name()), asker)) << "freed since";
  first.let_go();
  EXPECT_CUDA(driver().cuStreamSynchronize(second));
}

TEST_F(StreamClockTest, NoStreamFollowsAnotherBesideACapture) {
  HeldStream first = held();
  HeldStream second = held();
  first.hold();
  const FreeTicket ticket = free_on(first.name());
  captures.began();
  EXPECT_FALSE(clock->follow(ticket.stream, id(second.name())));
  captures.ended();
  EXPECT_FALSE(clock->is_before(ticket, id(second.name())));
}

TEST_F(StreamClockTest, AnEventThatOthersRecordTellsNothing) {
  HeldStream stream = held();
  stream.hold();
  const FreeTicket ticket = free_on(stream.name());
  const GivenEvent event;
  GIVEN(driver().cuEventRecord(event, stream));
  clock->event_recorded(event, stream.name(), clock->place_on(stream.name()));
  clock->event_is_recorded_unseen(event);
  clock->is_reached(event, clock->place_of(event));
  EXPECT_FALSE(clock->is_done(ticket));
}

TEST_F(StreamClockTest, AllWorkOfAContextIsWaitedFor) {
  HeldStream blocking = held(CU_STREAM_DEFAULT);
  HeldStream alone = held();
  clock->table().find(alone.name());
  blocking.hold();
  EXPECT_FALSE(clock->wait_for_all(context(), in_ms(20)));
  blocking.let_go();
  alone.hold();
  EXPECT_FALSE(clock->wait_for_all(context(), in_ms(20)));
  alone.let_go();
  EXPECT_TRUE(clock->wait_for_all(context(), in_ms(10'000)));
}

TEST_F(StreamClockTest, AStreamThatEndedIsWaitedForToTheEnd) {
  FreeTicket ticket;
  {
    HeldStream stream = held();
    stream.hold();
    ticket = free_on(stream.name());
    EXPECT_FALSE(clock->is_done(ticket));
    clock->stream_ends(stream);
    EXPECT_FALSE(clock->is_done(ticket));
  }
  EXPECT_TRUE(clock->wait(ticket, in_ms(10'000)));
}

TEST_F(StreamClockTest, WhatWasFreedInAContextThatIsGoneIsDone) {
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

TEST_F(StreamClockTest, AStreamThatEndsAmidACaptureDoesNotBreakIt) {
  HeldStream origin = held();
  HeldStream side = held();
  clock->table().find(side.name());
  const GivenEvent fork;
  const GivenEvent join;
  begin_capture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL);
  captures.began();
  GIVEN(driver().cuEventRecord(fork, origin));
  GIVEN(driver().cuStreamWaitEvent(side, fork, 0));
  GIVEN(driver().cuEventRecord(join, side));
  GIVEN(driver().cuStreamWaitEvent(origin, join, 0));
  clock->stream_ends(side);
  EXPECT_EQ(capture_status(origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  const GivenGraph graph = end_capture(origin);
  captures.ended();
}

TEST_F(StreamClockTest, LooksWithoutBreakingACapture) {
  HeldStream captured = held();
  HeldStream other = held();
  const FreeTicket ticket = free_on(other.name());
  const FreeTicket of_captured = free_on(captured.name());
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
  captures.began();
  EXPECT_TRUE(clock->wait(ticket, in_ms(10'000)));
  clock->look(of_captured.stream);
  EXPECT_FALSE(clock->is_done(of_captured)) << "nothing may be recorded on a stream being captured";
  EXPECT_EQ(capture_status(captured), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  GIVEN(driver().cuStreamEndCapture(captured, &graph));
  captures.ended();
  const GivenGraph ended{graph};
  EXPECT_TRUE(clock->wait(of_captured, in_ms(10'000)));
}

}  // namespace
}  // namespace cuvmm::test
