// SPDX-License-Identifier: Apache-2.0
#include "base/start_thread.hpp"

#include <signal.h>

#include <initializer_list>

namespace cuvmm {

int start_thread(pthread_t* thread, void* (*run)(void*), void* with) {
  sigset_t held_back;
  sigset_t before;
  ::sigfillset(&held_back);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&held_back, fault);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_back, &before);
  const int refused = ::pthread_create(thread, nullptr, run, with);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return refused;
}

}  // namespace cuvmm
