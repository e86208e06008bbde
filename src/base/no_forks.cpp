// SPDX-License-Identifier: Apache-2.0
#include "base/no_forks.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "base/clock.hpp"
#include "base/not_cancelled.hpp"

namespace cuvmm {
namespace {

constexpr std::uint64_t longest_wait_us = 1'000'000;
constexpr useconds_t rest = 20;

// By a thread that has a NoForks, or that forks.
constinit std::atomic<bool> is_taken{false};
constinit thread_local bool is_taken_here = false;
constinit thread_local bool is_taken_by_fork_here = false;

// Returns false after a timeout, or if this thread has it: in a signal handler that forks, say.
bool take() {
  if (is_taken_here) return false;
  const std::uint64_t until = now_us() + longest_wait_us;
  while (is_taken.exchange(true, std::memory_order_acquire)) {
    if (now_us() >= until) return false;
    rest_us(rest);
  }
  is_taken_here = true;
  return true;
}

void give_back() {
  is_taken_here = false;
  is_taken.store(false, std::memory_order_release);
}

void before_fork() {
  if (take()) is_taken_by_fork_here = true;
}

void after_fork() {
  if (std::exchange(is_taken_by_fork_here, false)) give_back();
}

void after_fork_in_child() {
  after_fork();
  // After a timeout, it was another thread's.
  if (!is_taken_here) is_taken.store(false);
}

// At load, so that the handlers are there before any thread needs them, and once.
[[gnu::constructor]] void handle_forks() {
  ::pthread_atfork(&before_fork, &after_fork, &after_fork_in_child);
}

}  // namespace

NoForks::NoForks() : is_mine_(take()) {}

NoForks::~NoForks() {
  if (is_mine_) give_back();
}

}  // namespace cuvmm
