// SPDX-License-Identifier: Apache-2.0
#include "stream/captures.hpp"

#include <sched.h>

#include "base/clock.hpp"

namespace cuvmm {
namespace {

// When so much has passed, the driver has seen the calls of the others, though it may wait on for
// work in one of them. Nothing tells when it has. On a busy machine time alone says little: another
// thread may not have run in it. But what this one has run, another that could run has too.
constexpr std::uint64_t longest_hold_ns = 100'000'000;
constexpr std::uint64_t longest_hold_run_ns = 20'000'000;
constexpr std::uint64_t last_resort_ns = 5'000'000'000;

std::uint64_t run_ns() {
  timespec run;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
  return static_cast<std::uint64_t>(run.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(run.tv_nsec);
}

}  // namespace

void Captures::wait_for_those_who_call() const {
  const std::uint64_t began = now_ns();
  const std::uint64_t run_before = run_ns();
  while (held_off_.load() != 0) {
    const std::uint64_t passed = now_ns() - began;
    if (passed >= last_resort_ns) return;
    if (passed >= longest_hold_ns && run_ns() - run_before >= longest_hold_run_ns) return;
    ::sched_yield();
  }
}

}  // namespace cuvmm
