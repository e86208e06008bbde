// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "support/scale.hpp"
#include "trace/ring.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

class TraceWriting : public TraceFolder {};

std::unique_ptr<TraceWriter> started(TraceSetup setup) {
  auto writer = TraceWriter::start(std::move(setup));
  EXPECT_TRUE(writer) << writer.error().text();
  return std::move(*writer);
}

void record_note(std::uint64_t number) {
  CUVMM_TRACE(.event = TraceEvent::Note, .address = number);
}

// The numbers that record_note() recorded, in trace order, by thread.
std::map<std::uint32_t, std::vector<std::uint64_t>> notes_in(const std::string& path) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> notes;
  for (const TraceRecord& record : records_of(path)) {
    if (record.event == TraceEvent::Note) notes[record.thread].push_back(record.address);
  }
  return notes;
}

TEST(TraceRing, CountsRecordsThatDoNotFit) {
  TraceRing* ring = TraceRing::create(16);
  ASSERT_NE(ring, nullptr);
  for (std::uint64_t number = 0; number < 20; ++number)
    ring->push(record_number(number, number), number);
  EXPECT_EQ(ring->lost(), 4u);

  std::vector<TraceRecord> taken;
  const auto take = [&](std::span<const TraceRecord> records) {
    taken.insert(taken.end(), records.begin(), records.end());
  };
  ring->drain(take);
  ASSERT_EQ(taken.size(), 16u);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(taken[i], record_number(i, i));

  for (std::uint64_t number = 20; number < 30; ++number)
    ring->push(record_number(number, number), number);
  ring->drain(take);
  EXPECT_EQ(taken.size(), 26u);
  EXPECT_EQ(taken.back(), record_number(29, 29));
  EXPECT_EQ(ring->lost(), 4u);
  TraceRing::destroy(ring);
}

TEST_F(TraceWriting, NothingIsRecordedBeforeStartAndAfterFinish) {
  EXPECT_FALSE(trace_is_on());
  record_note(1);
  const auto writer = started({.file = in_folder("t")});
  EXPECT_TRUE(trace_is_on());
  record_note(2);
  EXPECT_TRUE(writer->finish(in_time));
  EXPECT_FALSE(trace_is_on());
  record_note(3);
  EXPECT_TRUE(writer->finish(in_time));  // the second call does nothing

  const auto notes = notes_in(in_folder("t"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes.begin()->second, std::vector<std::uint64_t>{2});
  EXPECT_EQ(opened(in_folder("t")).note(), "");
}

TEST_F(TraceWriting, FieldsOfAnEventThatIsNotRecordedAreNotComputed) {
  int computed = 0;
  CUVMM_TRACE(.event = TraceEvent::Note, .address = static_cast<std::uint64_t>(++computed));
  EXPECT_EQ(computed, 0);
}

TEST_F(TraceWriting, EventsKeepTheirFieldsAndGetATimeAndAThread) {
  const auto writer = started({.file = in_folder("t")});
  const std::uint64_t start = now_ns();
  TraceRecord event = record_number(5, 0);
  record_event(event);
  const std::uint64_t end = now_ns();
  writer->finish(in_time);

  TraceReader trace = opened(in_folder("t"));
  const auto records = records_of(trace);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].event, TraceEvent::Thread);
  const std::uint64_t time = trace.header().start_ns + records[1].time;
  EXPECT_GE(time, start);
  EXPECT_LE(time, end);
  event.time = records[1].time;
  event.thread = records[0].thread;
  EXPECT_EQ(records[1], event);
}

TEST_F(TraceWriting, EventMayBeGivenAnEarlierTime) {
  const auto writer = started({.file = in_folder("t")});
  const std::uint64_t earlier = now_ns();
  record_note(1);
  CUVMM_TRACE(.time = earlier, .event = TraceEvent::Note, .address = 2);
  CUVMM_TRACE(.time = 1, .event = TraceEvent::Note, .address = 3);  // before the trace began
  writer->finish(in_time);
  const auto notes = notes_in(in_folder("t"));
  EXPECT_EQ(notes.begin()->second, (std::vector<std::uint64_t>{3, 2, 1}));
}

TEST_F(TraceWriting, ThreadsAreAnnouncedByNameAndNumber) {
  const auto writer = started({.file = in_folder("t")});
  std::thread{[] {
    ::pthread_setname_np(::pthread_self(), "loader");
    record_note(1);
  }}.join();
  writer->finish(in_time);
  const auto records = records_of(in_folder("t"));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].event, TraceEvent::Thread);
  EXPECT_EQ(thread_of(records[0]), "loader");
  EXPECT_NE(records[0].other, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(records[1].thread, records[0].thread);
}

TEST_F(TraceWriting, ManyThreadsAtOnceLoseNothingUncounted) {
  constexpr std::uint64_t threads = 16;
  const std::uint64_t events = scaled(20'000);
  const auto writer = started({.file = in_folder("t"), .ring_records = 1024});
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    all.emplace_back([=] {
      for (std::uint64_t i = 0; i < events; ++i) record_note(thread * events + i);
    });
  }
  for (auto& thread : all) thread.join();
  ASSERT_TRUE(writer->finish(in_time));

  const TraceTotals totals = writer->totals();
  TraceReader trace = opened(in_folder("t"));
  const auto records = records_of(trace);
  std::set<std::uint64_t> seen;
  std::map<std::uint32_t, std::uint64_t> last;
  std::uint64_t before = 0;
  std::uint64_t announced = 0;
  for (const TraceRecord& record : records) {
    EXPECT_GE(record.time, std::exchange(before, record.time));
    if (record.event == TraceEvent::Thread) {
      ++announced;
      continue;
    }
    EXPECT_TRUE(seen.insert(record.address).second) << "recorded twice";
    const auto [previous, is_first] = last.emplace(record.thread, record.address);
    if (is_first) continue;
    EXPECT_EQ(previous->second / events, record.address / events);  // one thread, one number
    EXPECT_LT(std::exchange(previous->second, record.address), record.address);
  }
  EXPECT_EQ(announced, last.size());
  EXPECT_EQ(seen.size() + totals.dropped, threads * events);
  EXPECT_EQ(totals.records, records.size());
  EXPECT_EQ(totals.bytes, std::filesystem::file_size(in_folder("t")));
  EXPECT_EQ(trace.health().dropped, totals.dropped);
  EXPECT_TRUE(trace.health().is_finished);
}

TEST_F(TraceWriting, ThreadsThatEndHandTheirRingsOn) {
  const auto writer = started({.file = in_folder("t"), .ring_records = 64});
  const auto count_rings = [] {
    std::size_t count = 0;
    trace_rings::for_each([&](const TraceRing&) { ++count; });
    return count;
  };
  const std::size_t before = count_rings();
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::thread{[=] { record_note(i); }}.join();
    ASSERT_TRUE(writer->flush(in_time));
  }
  EXPECT_LE(count_rings(), before + 1);
  writer->finish(in_time);
  const auto notes = notes_in(in_folder("t"));
  EXPECT_EQ(notes.size(), 50u) << "each thread has a number of its own";
  for (const auto& [thread, numbers] : notes) EXPECT_EQ(numbers.size(), 1u);
}

TEST_F(TraceWriting, FlushBringsAllThatWasRecordedToTheFile) {
  const auto writer = started({.file = in_folder("t"), .interval = std::chrono::hours{1}});
  for (std::uint64_t i = 0; i < 10; ++i) {
    record_note(i);
    ASSERT_TRUE(writer->flush(in_time));
    const auto notes = notes_in(in_folder("t"));
    ASSERT_EQ(notes.begin()->second.size(), i + 1);
  }
}

TEST_F(TraceWriting, IntervalBringsEventsToTheFileUnasked) {
  const auto writer = started({.file = in_folder("t"), .interval = std::chrono::milliseconds{1}});
  record_note(1);
  const std::uint64_t deadline = now_ns() + in_ns(in_time);
  while (notes_in(in_folder("t")).empty() && now_ns() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_EQ(notes_in(in_folder("t")).size(), 1u);
}

TEST_F(TraceWriting, HalfFullRingWakesTheWriter) {
  const auto writer =
      started({.file = in_folder("t"), .ring_records = 64, .interval = std::chrono::hours{1}});
  std::thread{[&] {
    for (std::uint64_t i = 0; i < 40; ++i) record_note(i);
    const std::uint64_t deadline = now_ns() + in_ns(in_time);
    while (notes_in(in_folder("t")).empty() && now_ns() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }}.join();
  EXPECT_FALSE(notes_in(in_folder("t")).empty());
}

TEST_F(TraceWriting, FactsMayBeAddedWhileItRuns) {
  const auto writer = started({.file = in_folder("t"), .header = small_header()});
  writer->add({.devices = {{.ordinal = 1, .memory = 1 * GiB, .name = "second"}}});
  writer->add({.names = {{TraceSubject::Pool, 2, "the pool"}}});
  writer->finish(in_time);
  TraceFacts expected = small_header().facts;
  expected.devices.push_back({.ordinal = 1, .memory = 1 * GiB, .name = "second"});
  expected.names.push_back({TraceSubject::Pool, 2, "the pool"});
  EXPECT_EQ(opened(in_folder("t")).header().facts, expected);
}

TEST_F(TraceWriting, OnlyOneAtATime) {
  auto writer = started({.file = in_folder("t")});
  const auto second = TraceWriter::start({.file = in_folder("u")});
  ASSERT_FALSE(second);
  EXPECT_EQ(files_in_folder(), 1u);
  writer->finish(in_time);
  for (std::uint64_t i = 0; i < 5; ++i) {
    writer = started({.file = in_folder("again" + std::to_string(i))});
    record_note(i);
    EXPECT_TRUE(writer->finish(in_time));
    EXPECT_EQ(notes_in(writer->path()).begin()->second, std::vector<std::uint64_t>{i});
  }
}

TEST_F(TraceWriting, ARefusedStartDoesNotPreventALaterOne) {
  EXPECT_FALSE(TraceWriter::start({.file = in_folder("none/t")}));
  EXPECT_FALSE(trace_is_on());
  started({.file = in_folder("t")});
}

// A signal handler also records, even while its thread is recording.
std::atomic<std::uint64_t> recorded_in_handler{0};

TEST_F(TraceWriting, SignalHandlerMayRecord) {
  recorded_in_handler = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {
    record_note(~std::uint64_t{0});
    ++recorded_in_handler;
  };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);

  const auto writer = started({.file = in_folder("t")});
  constexpr std::uint64_t events = 200'000;
  std::uint64_t recorded = 0;
  std::atomic<bool> is_done{false};
  std::thread recording{[&] {
    // The first signal may come when a busy machine has long recorded that many.
    for (; recorded < events || recorded_in_handler == 0; ++recorded) record_note(recorded);
    is_done = true;
    while (is_done) std::this_thread::yield();  // until signals stop arriving
  }};
  while (!is_done) ::pthread_kill(recording.native_handle(), SIGUSR1);
  is_done = false;
  recording.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  ASSERT_TRUE(writer->finish(in_time));

  std::uint64_t notes = 0;
  for (const auto& [thread, numbers] : notes_in(in_folder("t"))) notes += numbers.size();
  EXPECT_GT(recorded_in_handler, 0u);
  EXPECT_EQ(notes + writer->totals().dropped, recorded + recorded_in_handler);
}

TEST_F(TraceWriting, RecordingKeepsErrno) {
  const auto writer = started({.file = in_folder("t"), .ring_records = 16});
  std::thread{[] {
    errno = 4242;
    // Covers the first event, the wake-up of the writer, and losses.
    for (std::uint64_t i = 0; i < 1000; ++i) record_note(i);
    EXPECT_EQ(errno, 4242);
  }}.join();
}

// Blocks the writer's thread in the handler of an unmasked signal, as a hanging disk would.
class HeldUpWriter {
 public:
  HeldUpWriter() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      is_held_up = true;
      while (is_held_up) std::this_thread::yield();
    };
    ::sigaction(SIGTRAP, &action, &before_);
    pid_t writer = -1;
    while ((writer = thread()) == -1) std::this_thread::yield();
    ::syscall(SYS_tgkill, ::getpid(), writer, SIGTRAP);
    while (!is_held_up) std::this_thread::yield();
  }
  ~HeldUpWriter() {
    is_held_up = false;
    ::sigaction(SIGTRAP, &before_, nullptr);
  }
  HeldUpWriter(const HeldUpWriter&) = delete;
  HeldUpWriter& operator=(const HeldUpWriter&) = delete;

 private:
  // Returns -1 while the thread of an earlier writer is still ending.
  static pid_t thread() {
    pid_t found = -1;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
      std::ifstream name{task.path() / "comm"};
      std::string text;
      if (!std::getline(name, text) || text != "cuvmm-trace") continue;
      if (found != -1) return -1;
      found = std::stoi(task.path().filename());
    }
    return found;
  }
  static inline std::atomic<bool> is_held_up{false};
  struct sigaction before_ {};
};

TEST_F(TraceWriting, FinishGivesUpAtItsDeadline) {
  const auto writer = started({.file = in_folder("t")});
  {
    const HeldUpWriter held_up;
    EXPECT_FALSE(writer->flush(Duration{0}));
    EXPECT_FALSE(writer->finish(Duration{0}));
  }
  EXPECT_TRUE(writer->finish(in_time));
}

}  // namespace
}  // namespace cuvmm::test
