// SPDX-License-Identifier: Apache-2.0
// Waiting for a word to change, with a bound. Unlike a condition variable it holds no lock, so a
// forked child inherits nothing.
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

// Returns when the word is no longer `seen`, when woken, or after `at_most`; sometimes for nothing.
inline void wait_while(FutexWord& word, std::uint32_t seen, Duration at_most) {
  const int kept = errno;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec bound{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds{at_most - seconds}.count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &bound, nullptr, 0);
  errno = kept;
}

// The same two for a word that processes share.
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
