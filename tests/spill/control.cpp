// SPDX-License-Identifier: Apache-2.0
// The calls that wait while a process is paused, and the socket that controls it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "controlled_process.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

std::string only_name_in(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator {
    folder
    } -> path().filename();
}

TEST_F(ControlTest, PausesAndResumesByTheSocket) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  const CUdeviceptr address = process.given_block();

  const auto paused = share::tell(::getpid(), request(ControlWhat::Pause), soon());
  ASSERT_TRUE(paused.ok()) << paused.error().text();
  EXPECT_EQ(paused->outcome, ControlOutcome::Done) << paused->text.data();
  EXPECT_EQ(paused->moved, 4 * MiB);
  EXPECT_EQ(paused->is_paused, 1u);

  std::atomic<bool> passed{false};
  std::thread caller{[&] {
    const CallBarrier::Pass call{process.calls};
    passed = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_FALSE(passed);

  const auto resumed = share::tell(::getpid(), request(ControlWhat::Resume), soon());
  caller.join();
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->outcome, ControlOutcome::Done) << resumed->text.data();
  EXPECT_EQ(resumed->moved, 4 * MiB);
  EXPECT_EQ(resumed->is_paused, 0u);
  EXPECT_TRUE(passed);
  expect_pattern(address, 4 * MiB, 3);
  EXPECT_EQ(process.memory->free(address), Answer{CUDA_SUCCESS});

  EXPECT_EQ(share::controlled_processes(), std::vector<pid_t>{::getpid()});
  // The pinned memory is no longer needed.
  EXPECT_TRUE(comes_to_pass([&] { return process.control->ready_bytes() == 0; }));
  process.end();
}

constexpr std::uint64_t longest_pause_us = 60'000'000;

// A pause of this process that another thread requests.
class LongPause {
 public:
  LongPause() = default;
  ~LongPause() {
    if (thread_.joinable()) thread_.join();
  }
  LongPause(const LongPause&) = delete;
  LongPause& operator=(const LongPause&) = delete;
  const share::ControlAnswer& answer() {
    if (thread_.joinable()) thread_.join();
    return *answer_;
  }

 private:
  std::optional<share::ControlAnswer> answer_;
  std::thread thread_{[this] {
    ControlRequest words = request(ControlWhat::Pause);
    words.timeout_us = longest_pause_us;
    answer_ =
        *share::tell(::getpid(), words, share::Deadline::after(Duration{2 * longest_pause_us}));
  }};
};

TEST_F(ControlTest, AResumeCancelsAWaitingPause) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  EndlessWork work{driver(), process};
  LongPause pause;
  EXPECT_TRUE(comes_to_pass([&] { return process.calls.is_shut(); }));

  const auto state = share::tell(::getpid(), request(ControlWhat::State), soon());
  ASSERT_TRUE(state.ok()) << state.error().text();
  EXPECT_EQ(state->is_paused, 0u);
  const auto again = share::tell(::getpid(), request(ControlWhat::Pause), soon());
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_STREQ(again->text.data(), "another pause or resume is under way");

  const auto resumed = share::tell(::getpid(), request(ControlWhat::Resume), soon());
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->outcome, ControlOutcome::Done);
  EXPECT_EQ(pause.answer().outcome, ControlOutcome::Refused);
  EXPECT_FALSE(process.calls.is_shut());
  work.end(driver());
  process.end();
}

TEST_F(ControlTest, OnlyACommandResumesWhatACommandHasPaused) {
  using Asker = Control::Asker;
  auto& process = *new ControlledProcess{driver()};
  const CUdeviceptr address = process.given_block();
  Control& control = *process.control;
  const auto pause = [&](Asker asker) {
    return control.pause(Duration{20'000'000}, Strict::No, {}, asker).ok();
  };
  ASSERT_TRUE(pause(Asker::Service));
  EXPECT_FALSE(control.is_paused_by_command());
  EXPECT_TRUE(control.resume(Partly::No, Asker::Service).ok());

  ASSERT_TRUE(pause(Asker::Service));
  ASSERT_TRUE(pause(Asker::Command));
  ASSERT_TRUE(pause(Asker::Service));
  EXPECT_TRUE(control.is_paused_by_command());
  EXPECT_FALSE(control.resume(Partly::No, Asker::Service).ok());
  control.return_ahead();
  EXPECT_TRUE(control.is_paused());
  EXPECT_EQ(process.memory->devices().all().front()->chunk_counters().physical_in_use, 0u);
  EXPECT_TRUE(control.resume(Partly::No).ok());
  EXPECT_FALSE(control.is_paused_by_command());

  ASSERT_TRUE(pause(Asker::Service));
  EXPECT_TRUE(control.resume(Partly::No, Asker::Service).ok());
  EXPECT_EQ(process.memory->free(address), Answer{CUDA_SUCCESS});
  EXPECT_TRUE(comes_to_pass([&] { return control.ready_bytes() == 0; }));
  process.end();
}

TEST_F(ControlTest, AnAbandonedPauseIsCancelled) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  EndlessWork work{driver(), process};
  ControlRequest words = request(ControlWhat::Pause);
  words.timeout_us = longest_pause_us;
  const auto given_up =
      share::tell(::getpid(), words, share::Deadline::after(std::chrono::milliseconds{300}));
  ASSERT_FALSE(given_up.ok());
  EXPECT_EQ(given_up.error().kind, ErrorKind::TimedOut);
  EXPECT_TRUE(comes_to_pass([&] { return !process.calls.is_shut(); }));
  EXPECT_FALSE(process.control->is_paused());
  work.end(driver());
  process.end();
}

// Otherwise the process would stay paused for ever, since its socket ends with it.
TEST_F(ControlTest, APauseInProgressEndsWhenTheProcessDoes) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  EndlessWork work{driver(), process};
  LongPause pause;
  EXPECT_TRUE(comes_to_pass([&] { return process.calls.is_shut(); }));
  EXPECT_TRUE(process.control->may_need_resume());

  process.control->refuse_pauses();
  EXPECT_TRUE(comes_to_pass([&] { return !process.calls.is_shut(); }));
  EXPECT_EQ(pause.answer().outcome, ControlOutcome::Refused);
  EXPECT_STREQ(pause.answer().text.data(), "pause: invalid argument (the process is about to end)");
  EXPECT_TRUE(comes_to_pass([&] { return !process.control->may_need_resume(); }));
  work.end(driver());
  process.end();
}

// A thread inside a call that returns only when this object ends.
class CallUnderWay {
 public:
  explicit CallUnderWay(CallBarrier& calls, const std::string& name = {})
      : thread_{[this, &calls, name] {
          if (!name.empty()) ::pthread_setname_np(::pthread_self(), name.c_str());
          const CallBarrier::Pass pass{calls, Call::cuMemFree_v2};
          number_ = ::gettid();
          is_inside_ = true;
          while (!may_return_) std::this_thread::yield();
        }} {
    while (!is_inside_) std::this_thread::yield();
  }
  ~CallUnderWay() { end(); }
  CallUnderWay(const CallUnderWay&) = delete;
  CallUnderWay& operator=(const CallUnderWay&) = delete;
  pid_t number() const { return number_; }
  void end() {
    may_return_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> is_inside_{false};
  std::atomic<bool> may_return_{false};
  std::atomic<pid_t> number_{0};
  std::thread thread_;
};

TEST_F(ControlTest, AResumeCancelsAPauseThatWaitsForACall) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  CallUnderWay call{process.calls};
  LongPause pause;
  EXPECT_TRUE(comes_to_pass([&] { return process.calls.is_shut(); }));
  const auto state = share::tell(::getpid(), request(ControlWhat::State), soon());
  ASSERT_TRUE(state.ok()) << state.error().text();
  EXPECT_EQ(state->is_paused, 0u);

  const auto resumed = share::tell(::getpid(), request(ControlWhat::Resume), soon());
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->outcome, ControlOutcome::Done) << resumed->text.data();
  EXPECT_EQ(pause.answer().outcome, ControlOutcome::Refused);
  EXPECT_FALSE(process.calls.is_shut());
  call.end();
  process.end();
}

TEST_F(ControlTest, AnAbandonedPauseBlocksNobodyWhileACallRuns) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  CallUnderWay call{process.calls};
  ControlRequest words = request(ControlWhat::Pause);
  words.timeout_us = longest_pause_us;
  const auto given_up =
      share::tell(::getpid(), words, share::Deadline::after(std::chrono::milliseconds{300}));
  ASSERT_FALSE(given_up.ok());
  EXPECT_TRUE(comes_to_pass([&] { return !process.calls.is_shut(); }));
  call.end();
  process.end();
}

// The pause lets the caller's thread out, so that it can wait for running work, for longer than the
// caller would wait for another request.
TEST_F(ControlTest, ACallWhoseMemoryMustMoveWaitsForThePauseUnderWay) {
  auto& process = *new ControlledProcess{driver()};
  serve_commands(*process.control);
  EndlessWork work{driver(), process};
  std::atomic<bool> is_inside{false};
  std::atomic<bool> is_done{false};
  std::atomic<int> looks{0};
  // The end of the resume takes part of it, which may be long on a busy machine.
  constexpr std::chrono::milliseconds for_another_request{1000};
  const auto spilled_until_looked_at = [&] {
    return std::vector<ChunkExchange::Place>(looks++ == 0 ? 1 : 0);
  };
  std::thread caller{[&] {
    const CallBarrier::Pass call{process.calls};
    is_inside = true;
    EXPECT_TRUE(comes_to_pass([&] { return process.calls.is_shut(); }));
    const auto done = process.control->bring_in(spilled_until_looked_at, for_another_request);
    EXPECT_TRUE(done.ok()) << done.error().text();
    is_done = true;
  }};
  EXPECT_TRUE(comes_to_pass([&] { return is_inside.load(); }));
  LongPause pause;
  EXPECT_TRUE(comes_to_pass([&] { return looks != 0; }));
  std::this_thread::sleep_for(for_another_request + std::chrono::milliseconds{100});
  EXPECT_FALSE(is_done);
  work.let_end(driver());
  EXPECT_EQ(pause.answer().outcome, ControlOutcome::Done);
  EXPECT_FALSE(is_done);
  EXPECT_TRUE(process.control->resume(Partly::No).ok());
  caller.join();
  work.end(driver());
  process.end();
}

TEST_F(ControlTest, APauseThatTimesOutNamesTheCallAndItsThread) {
  auto& process = *new ControlledProcess{driver()};
  CallUnderWay call{process.calls, "trainer"};
  const auto paused = process.control->pause(Duration{1}, Strict::No);
  ASSERT_FALSE(paused.ok());
  EXPECT_EQ(paused.error().kind, ErrorKind::TimedOut);
  EXPECT_EQ(paused.error().text(),
            "pause: timed out (cuMemFree did not return in time, in thread " +
                std::to_string(call.number()) + " (trainer))");
  EXPECT_FALSE(process.calls.is_shut());
  call.end();
  process.end();
}

// The host memory that a timed-out pause requested is still being cleared when the next one comes.
TEST_F(ControlTest, APauseSucceedsAfterOneThatTimedOut) {
  auto& process = *new ControlledProcess{driver()};
  CUdeviceptr address = 0;
  ASSERT_EQ(process.memory->allocate(&address, 32 * MiB), Answer{CUDA_SUCCESS});
  fill_pattern(address, 4 * MiB, 5);
  process.submission_epoch.leave();
  for (int i = 0; i < 3; ++i) {
    CallUnderWay call{process.calls};
    const auto paused = process.control->pause(Duration{1}, Strict::No);
    ASSERT_FALSE(paused.ok());
    EXPECT_EQ(paused.error().kind, ErrorKind::TimedOut) << paused.error().text();
    const auto resumed = process.control->resume(Partly::No);
    EXPECT_TRUE(resumed.ok()) << resumed.error().text();
  }
  const auto paused = process.control->pause(Duration{20'000'000}, Strict::No);
  ASSERT_TRUE(paused.ok()) << paused.error().text();
  EXPECT_EQ(paused->moved, 32 * MiB);
  ASSERT_TRUE(process.control->resume(Partly::No).ok());
  expect_pattern(address, 4 * MiB, 5);
  EXPECT_EQ(process.memory->free(address), Answer{CUDA_SUCCESS});
  EXPECT_TRUE(comes_to_pass([&] { return process.control->ready_bytes() == 0; }));
  process.end();
}

// With the name that a process of another namespace with the same number would have.
TEST_F(ControlTest, AnotherProcessesFileIsNeitherReplacedNorRemoved) {
  auto first = share::ControlSocket::open();
  ASSERT_TRUE(first.ok()) << first.error().text();
  const auto second = share::ControlSocket::open();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::AlreadyExists);

  const std::string name = only_name_in(folder_ / "cuvmm");
  std::filesystem::rename(folder_ / "cuvmm" / name, folder_ / "cuvmm" / "elsewhere");
  const auto other = share::ControlSocket::open();
  ASSERT_TRUE(other.ok()) << other.error().text();
  first->remove();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "cuvmm" / name));
}

TEST_F(ControlTest, GarbageDoesNotFloodTheLog) {
  const std::string log = folder_ / "log";
  ASSERT_TRUE(set_up_log({.file = log}).ok());
  auto socket = share::ControlSocket::open();
  ASSERT_TRUE(socket.ok()) << socket.error().text();
  const auto path = folder_ / "cuvmm" / only_name_in(folder_ / "cuvmm");
  for (int i = 0; i < 50; ++i) {
    const auto rude = share::connect_to(path, soon());
    ASSERT_TRUE(rude.ok()) << rude.error().text();
    ASSERT_EQ(::send(rude->number(), "garbage", 7, 0), 7);
    socket->serve([](const auto&, const auto&, auto*) { return share::ControlAnswer{}; },
                  share::Deadline{});
  }
  ASSERT_TRUE(set_up_log({}).ok());
  std::ifstream written{log};
  int lines = 0;
  for (std::string line; std::getline(written, line);) ++lines;
  EXPECT_LE(lines, 1);
}

// Otherwise programs that clean up /tmp would take the socket for a stale one.
TEST_F(ControlTest, AServedSocketStaysFresh) {
  auto socket = share::ControlSocket::open();
  ASSERT_TRUE(socket.ok()) << socket.error().text();
  const auto path = folder_ / "cuvmm" / only_name_in(folder_ / "cuvmm");
  const timespec long_ago[2]{{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), long_ago, 0), 0);
  socket->keep_file();
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_GT(facts.st_mtime, 1);
}

// logind removes a user's runtime folder at logout.
TEST_F(ControlTest, AServedSocketReturnsIfItsFolderHasBeenRemoved) {
  auto socket = share::ControlSocket::open();
  ASSERT_TRUE(socket.ok()) << socket.error().text();
  const auto tells = [&] {
    std::atomic<bool> is_over{false};
    std::thread serves{[&] {
      while (!is_over) {
        socket->keep_file();
        socket->serve([](const auto&, const auto&, auto*) { return share::ControlAnswer{}; },
                      share::Deadline::after(Duration{1'000}));
      }
    }};
    const bool told = comes_to_pass(
        [] { return share::tell(::getpid(), request(ControlWhat::State), soon()).ok(); });
    is_over = true;
    serves.join();
    return told;
  };
  std::filesystem::remove_all(folder_ / "cuvmm");
  EXPECT_TRUE(tells());
  // If the folder cannot be made again, another one has to do.
  std::filesystem::remove_all(folder_);
  EXPECT_TRUE(tells());
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(ControlTest, AProgramThatDropsItsPrivilegesStaysControlled) {
  if (::geteuid() != 0) GTEST_SKIP() << "this user has none to drop";
  auto socket = share::ControlSocket::open();
  ASSERT_TRUE(socket.ok()) << socket.error().text();
  const auto path = folder_ / "cuvmm" / only_name_in(folder_ / "cuvmm");
  const auto visitor = share::connect_to(path, soon());
  ASSERT_TRUE(visitor.ok()) << visitor.error().text();
  constexpr uid_t nobody = 65534;
  ASSERT_EQ(::seteuid(nobody), 0);
  auto told = std::async(std::launch::async, [&] {
    return share::tell(*visitor, request(ControlWhat::State), soon());
  });
  while (told.wait_for(std::chrono::seconds{0}) != std::future_status::ready) {
    socket->serve([](const auto&, const auto&, auto*) { return share::ControlAnswer{}; },
                  share::Deadline::after(Duration{10'000}));
  }
  ASSERT_EQ(::seteuid(0), 0);
  const auto answer = told.get();
  EXPECT_TRUE(answer.ok()) << answer.error().text();
}

TEST_F(ControlTest, ADeadProcessesSocketIsNoProcess) {
  ASSERT_TRUE(share::private_folder().ok());
  const std::string name = "control-1-1";
  const Fd dead{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_ / "cuvmm" / name;
  ASSERT_LT(path.copy(address.sun_path, sizeof address.sun_path - 1), sizeof address.sun_path);
  ASSERT_EQ(::bind(dead.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(share::controlled_processes().empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ControlTest, WithoutASocketATellFails) {
  const auto told = share::tell(1, request(ControlWhat::State), soon());
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().kind, ErrorKind::NotFound);
}

}  // namespace
}  // namespace cuvmm::test
