// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <cerrno>
#include <initializer_list>

#include "base/not_cancelled.hpp"

namespace cuvmm {

// Blocks the signals that a write may raise on this thread: a reader that has gone (SIGPIPE) or a
// file size limit (SIGXFSZ) must not kill the program because of cuvmm's output. Nor must the write
// end the thread if it has been cancelled. Preserves errno.
class WithoutWriteSignals {
 public:
  WithoutWriteSignals() {
    sigset_t raised;
    ::sigemptyset(&raised);
    ::sigaddset(&raised, SIGPIPE);
    ::sigaddset(&raised, SIGXFSZ);
    ::sigemptyset(&ours_);
    sigset_t pending;
    ::sigpending(&pending);
    // A signal that was already pending belongs to the program.
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (::sigismember(&pending, signal) != 1) ::sigaddset(&ours_, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &raised, &before_);
  }
  ~WithoutWriteSignals() {
    const int kept = errno;
    const timespec at_once{};
    while (::sigtimedwait(&ours_, nullptr, &at_once) > 0 || errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = kept;
  }
  WithoutWriteSignals(const WithoutWriteSignals&) = delete;
  WithoutWriteSignals& operator=(const WithoutWriteSignals&) = delete;

 private:
  const NotCancelled whole_;
  sigset_t ours_;
  sigset_t before_;
};

}  // namespace cuvmm
