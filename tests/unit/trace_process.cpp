// SPDX-License-Identifier: Apache-2.0
// A trace over the life of its process: killed, forked, ended.
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <thread>

#include "base/clock.hpp"
#include "support/scale.hpp"
#include "trace/ring.hpp"
#include "trace/writer.hpp"
#include "unit/trace_world.hpp"

namespace cuvmm::test {
namespace {

class TraceOfProcess : public TraceFolder {};

void record_number(std::uint64_t number) {
  CUVMM_TRACE(.event = TraceEvent::Note, .address = number);
}

std::vector<std::uint64_t> numbers_in(const std::string& path) {
  std::vector<std::uint64_t> numbers;
  for (const TraceRecord& record : records_of(path)) {
    if (record.event == TraceEvent::Note) numbers.push_back(record.address);
  }
  return numbers;
}

std::unique_ptr<TraceWriter> started(TraceSetup setup) {
  auto writer = TraceWriter::start(std::move(setup));
  EXPECT_TRUE(writer) << writer.error().text();
  return std::move(*writer);
}

// Static like an engine's, and never destroyed.
std::unique_ptr<TraceWriter> until_the_end;

// Runs `work` in a forked child and returns its exit status, or 128 + the signal that ended it.
template <class Work>
int in_child(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

#define SKIP_WHERE_CHILDREN_START_NO_THREADS() \
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer allows no thread in a forked child"

TEST_F(TraceOfProcess, KilledTraceIsReadableUpToTheLastFlush) {
  SKIP_WHERE_CHILDREN_START_NO_THREADS();
  EXPECT_EQ(in_child([&] {
              const auto writer = started({.file = in_folder("t")});
              for (std::uint64_t i = 0; i < 5000; ++i) record_number(i);
              if (!writer->flush(in_time)) ::_exit(1);
              record_number(5000);  // may be lost
              ::kill(::getpid(), SIGKILL);
            }),
            128 + SIGKILL);
  const auto numbers = numbers_in(in_folder("t"));
  ASSERT_GE(numbers.size(), 5000u);
  for (std::uint64_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i);
  TraceReader trace = opened(in_folder("t"));
  EXPECT_FALSE(trace.health().is_finished);
  EXPECT_NE(trace.note(), "");
}

TEST_F(TraceOfProcess, KilledInTheMiddleOfWritingInventsNothing) {
  SKIP_WHERE_CHILDREN_START_NO_THREADS();
  for (std::uint64_t round = 0; round < scaled(20); ++round) {
    const std::string path = in_folder("t" + std::to_string(round));
    const pid_t child = ::fork();
    if (child == 0) {
      until_the_end = started({.file = path, .ring_records = 256});
      for (std::uint64_t i = 0;; ++i) record_number(i);
    }
    while (!std::filesystem::exists(path) || std::filesystem::file_size(path) < 200'000) {
      std::this_thread::yield();
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    TraceReader trace = opened(path);
    std::uint64_t before = 0;
    std::uint64_t count = 0;
    while (const TraceRecord* record = trace.next()) {
      if (record->event == TraceEvent::Thread) continue;
      ASSERT_EQ(record->event, TraceEvent::Note);
      if (count > 0) {
        ASSERT_GT(record->address, before);
      }
      ++count;
      before = record->address;
    }
    EXPECT_GT(count, 1000u);
    EXPECT_EQ(trace.health().damaged, 0u);
    EXPECT_GE(before + 1, count);
  }
}

TEST_F(TraceOfProcess, ForkedChildLeavesTheTraceToItsParent) {
  const auto writer = started({.file = in_folder("t")});
  record_number(1);
  EXPECT_EQ(in_child([&] {
              TraceWriter::forget_after_fork();
              record_number(100);  // recording is off: goes nowhere
              if (trace_is_on() || writer->flush() || writer->finish()) ::_exit(1);
              std::size_t rings = 0;
              trace_rings::for_each([&](const TraceRing&) { ++rings; });
              if (rings != 0) ::_exit(2);
            }),
            0);
  record_number(2);
  EXPECT_TRUE(writer->finish(in_time));
  EXPECT_EQ(numbers_in(in_folder("t")), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(opened(in_folder("t")).note(), "");
}

TEST_F(TraceOfProcess, ForkedChildThatKeepsRecordingDoesNoHarm) {
  const auto writer = started({.file = in_folder("t"), .ring_records = 64});
  record_number(1);
  EXPECT_EQ(in_child([&] {
              for (std::uint64_t i = 0; i < 1000; ++i) record_number(100);
              if (writer->flush() || writer->finish()) ::_exit(1);
            }),
            0);
  record_number(2);
  EXPECT_TRUE(writer->finish(in_time));
  EXPECT_EQ(numbers_in(in_folder("t")), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(TraceOfProcess, ForkedChildMayTakeATraceOfItsOwn) {
  SKIP_WHERE_CHILDREN_START_NO_THREADS();
  const auto writer = started({.file = in_folder("t")});
  record_number(1);
  EXPECT_EQ(in_child([&] {
              TraceWriter::forget_after_fork();
              const auto own = started({.file = in_folder("t")});
              record_number(100);
              if (!own->finish(in_time)) ::_exit(1);
              if (own->path() != in_folder("t") + "." + std::to_string(::getpid())) ::_exit(2);
              if (numbers_in(own->path()) != std::vector<std::uint64_t>{100}) ::_exit(3);
            }),
            0);
  EXPECT_TRUE(writer->finish(in_time));
  EXPECT_EQ(numbers_in(in_folder("t")), std::vector<std::uint64_t>{1});
  EXPECT_EQ(files_in_folder(), 2u);
}

TEST_F(TraceOfProcess, ForksBesideRecordingThreadsAreClean) {
  const auto writer = started({.file = in_folder("t"), .ring_records = 1024});
  std::atomic<bool> is_done{false};
  std::atomic<std::uint64_t> recorded{0};
  const auto record_until_done = [&] {
    for (; !is_done; ++recorded) record_number(1);
  };
  std::array threads{std::thread{record_until_done}, std::thread{record_until_done},
                     std::thread{record_until_done}};
  for (std::uint64_t i = 0; i < scaled(50) && !HasFailure(); ++i) {
    EXPECT_EQ(in_child([] {
                TraceWriter::forget_after_fork();
                record_number(100);
              }),
              0);
  }
  is_done = true;
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(writer->finish(in_time));
  const auto numbers = numbers_in(in_folder("t"));
  EXPECT_EQ(numbers.size() + writer->totals().dropped, recorded);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 1), std::ssize(numbers));
}

TEST_F(TraceOfProcess, ExitFinishesTheTrace) {
  SKIP_WHERE_CHILDREN_START_NO_THREADS();
  const pid_t child = ::fork();
  if (child == 0) {
    until_the_end = started({.file = in_folder("t")});
    std::atexit([] { record_number(2); });
    std::thread{[] {
      for (;;) record_number(3);
    }}.detach();
    record_number(1);
    std::atexit([] {
      record_number(4);
      until_the_end->finish(in_time);
      record_number(5);
    });
    ::fflush(nullptr);
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  TraceReader trace = opened(in_folder("t"));
  EXPECT_TRUE(trace.health().is_finished);
  const auto numbers = numbers_in(in_folder("t"));
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 1), 1);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 4), 1);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 5), 0);
}

}  // namespace
}  // namespace cuvmm::test
