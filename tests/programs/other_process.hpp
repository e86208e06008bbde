// SPDX-License-Identifier: Apache-2.0
// Runs this program a second time, as a process that opens memory by its IPC handle and reads it.
#pragma once

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "examples/driver_calls.hpp"

namespace {

// Defined by the including program.
[[noreturn]] void missing_driver(const char* symbol);
[[noreturn]] void fail(const char* what, std::uint64_t expected, std::uint64_t got);
void check(CUresult answer, const char* what);

// Asks about words of the memory: those before `border` should be `before`, the others `behind`.
struct Question {
  CUipcMemHandle handle;
  std::uint64_t begin;
  std::uint64_t words;
  std::uint64_t border;
  std::uint32_t before;
  std::uint32_t behind;
};
struct Answer {
  CUresult refusal;
  std::uint32_t expected;
  std::uint32_t got;
};

class OtherProcess {
 public:
  static constexpr const char* role = "--look-for";

  // Must be created before the first driver call.
  OtherProcess() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) give_up();
    channel_ = ends[0];
    const int inherited = ::dup(ends[1]);
    std::string end = std::to_string(inherited);
    std::string name = "other process";
    std::string what = role;
    std::array<char*, 4> words{name.data(), what.data(), end.data(), nullptr};
    if (::posix_spawn(&process_, "/proc/self/exe", nullptr, nullptr, words.data(), environ) != 0) {
      give_up();
    }
    ::close(inherited);
    ::close(ends[1]);
  }
  ~OtherProcess() {
    ::close(channel_);
    int ended = 0;
    if (::waitpid(process_, &ended, 0) != process_ || ended != 0) {
      fail("the other process' end", 0, static_cast<std::uint64_t>(ended));
    }
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  // All work on the memory must be complete. One thread at a time.
  void look_at(CUdeviceptr address, Question question) {
    check(CALL(cuIpcGetMemHandle)(&question.handle, address), "cuIpcGetMemHandle");
    const std::lock_guard alone{mutex_};
    Answer answer{};
    if (::send(channel_, &question, sizeof question, MSG_NOSIGNAL) != sizeof question ||
        ::recv(channel_, &answer, sizeof answer, 0) != sizeof answer) {
      fail("an answer of the other process", 1, 0);
    }
    check(answer.refusal, "the other process");
    if (answer.got != answer.expected) fail("a shared word", answer.expected, answer.got);
  }

  // Body of the other process: answers until the channel is closed.
  static void answer_all(const char* channel) {
    const int end = std::atoi(channel);
    Question question{};
    while (::recv(end, &question, sizeof question, 0) == sizeof question) {
      const Answer answer = answer_to(question);
      if (::send(end, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
    }
  }

 private:
  [[noreturn]] static void give_up() { fail("another process", 1, 0); }

  static Answer answer_to(const Question& question) {
    CUdeviceptr address = 0;
    CUresult answer =
        CALL(cuIpcOpenMemHandle)(&address, question.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (answer != CUDA_SUCCESS) return {answer, 0, 0};
    std::vector<std::uint32_t> words(question.words);
    answer = CALL(cuMemcpyDtoH)(words.data(), address + question.begin * 4, question.words * 4);
    const CUresult closed = CALL(cuIpcCloseMemHandle)(address);
    if (answer != CUDA_SUCCESS) return {answer, 0, 0};
    for (std::uint64_t i = 0; i < question.words; ++i) {
      const std::uint32_t expected =
          question.begin + i < question.border ? question.before : question.behind;
      if (words[i] != expected) return {CUDA_SUCCESS, expected, words[i]};
    }
    return {closed, 0, 0};
  }

  int channel_ = -1;
  pid_t process_ = 0;
  std::mutex mutex_;
};

}  // namespace
