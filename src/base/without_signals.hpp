// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <cerrno>
#include <initializer_list>

namespace cuvmm {

// Holds back from this thread what a write may raise: neither a reader that has gone (SIGPIPE) nor
// a limit on the size of files (SIGXFSZ) is to end a program for what we write. Keeps errno.
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
    // What was there before is the program's.
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
  sigset_t ours_;
  sigset_t before_;
};

}  // namespace cuvmm
