// SPDX-License-Identifier: Apache-2.0
// Forks while other threads make their first driver calls. A child has to be able to use the
// driver, unless its parent had started it. Arguments:
//
//   refused ROUNDS   the threads' calls are refused, since nobody calls cuInit: every child starts
//                    the driver itself
//   init ROUNDS      the threads call cuInit: a child may be refused
//
// Each round is a process of its own and forks at another moment after the threads' start. A child
// that hangs is killed, and fails the round.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "routes.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr unsigned patience_s = 20;
constexpr int thread_count = 4;
constexpr int children_a_round = 4;
// The first calls take a few milliseconds.
constexpr microseconds between_forks{1200};
constexpr int moments = 40;
constexpr microseconds between_moments{60};

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Without sleeping, which takes much longer than asked for.
void spin_until(Clock::time_point moment) {
  while (Clock::now() < moment) continue;
}

[[noreturn]] void be_a_child(bool may_be_refused) {
  alarm(patience_s);
  const Calls calls = calls_by_dlsym();
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  const CUresult begun = calls.cuInit_(0);
  if (begun == CUDA_ERROR_NOT_INITIALIZED && may_be_refused) _exit(0);
  if (begun != CUDA_SUCCESS) _exit(10);
  if (calls.cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS) _exit(11);
  if (calls.cuCtxSetCurrent_(context) != CUDA_SUCCESS) _exit(12);
  if (calls.cuMemAlloc_(&address, 1 << 20) != CUDA_SUCCESS) _exit(13);
  if (calls.cuMemFree_(address) != CUDA_SUCCESS) _exit(14);
  _exit(0);
}

int fork_during_first_calls(const std::string& which, microseconds delay) {
  const bool calls_init = which == "init";
  driver_library();  // which must be loaded: the C library's loader does not survive such a fork
  std::atomic<bool> begin{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&] {
      while (!begin) continue;
      const Calls calls = calls_by_dlsym();
      for (int call = 0; call < 20; ++call) {
        calls_init ? calls.cuInit_(0) : calls.cuMemsetD32_(0, 1, 1);
      }
    });
  }
  Clock::time_point moment = Clock::now() + delay;
  begin = true;
  std::vector<pid_t> children;
  for (int i = 0; i < children_a_round; ++i) {
    spin_until(moment);
    children.push_back(fork());
    if (children.back() == 0) be_a_child(calls_init);
    moment += between_forks;
  }
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  for (const pid_t child : children) status = std::max(status, wait_for(child));
  return status;
}

int run_rounds(char* self, char* which, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::string delay = std::to_string((round % moments) * between_moments.count());
    std::string once = "once";
    char* words[] = {self, which, once.data(), delay.data(), nullptr};
    pid_t one = 0;
    if (posix_spawn(&one, self, nullptr, nullptr, words, environ) != 0) return 20;
    if (const int status = wait_for(one); status != 0) {
      std::printf("status %d in round %d\n", status, round);
      return status;
    }
  }
  std::printf("%d rounds\n", rounds);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 4) return fork_during_first_calls(words[1], microseconds{std::atoi(words[3])});
  return count == 3 ? run_rounds(words[0], words[1], std::atoi(words[2])) : 2;
}
