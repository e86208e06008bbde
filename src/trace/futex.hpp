// SPDX-License-Identifier: Apache-2.0
// Waits for a word to change, with a timeout. Unlike a condition variable it holds no lock that a
// forked child could inherit.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>

#include "base/clock.hpp"

namespace cuvmm {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == sizeof(std::uint32_t));

// Returns once the word differs from `seen`, when woken, or after `at_most`; may wake spuriously.
inline void wait_while(FutexWord& word, std::uint32_t seen, Duration at_most) {
  const int kept = errno;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec bound{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds{at_most - seconds}.count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &bound, nullptr, 0);
  errno = kept;
}

// The same for a word in memory shared between processes.
inline void wait_while_shared(FutexWord& word, std::uint32_t seen, Duration at_most) {
  const int kept = errno;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec bound{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds{at_most - seconds}.count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &bound, nullptr, 0);
  errno = kept;
}
inline void wake_all_shared(FutexWord& word) {
  const int kept = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = kept;
}

inline void wake_all(FutexWord& word) {
  const int kept = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  errno = kept;
}

}  // namespace cuvmm
