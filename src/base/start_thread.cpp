// SPDX-License-Identifier: Apache-2.0
#include "base/start_thread.hpp"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>

namespace cuvmm {
namespace {

constexpr std::size_t smallest_stack = 256UL * 1024;

}  // namespace

int start_thread(pthread_t* thread, void* (*run)(void*), void* with) {
  sigset_t held_back;
  sigset_t before;
  ::sigfillset(&held_back);
  // SIGABRT may be for a program that waits for it; abort() unblocks it by itself.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    ::sigdelset(&held_back, fault);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_back, &before);
  // A program's default may be too small for cuvmm's threads (pthread_setattr_default_np).
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  std::size_t stack = 0;
  ::pthread_attr_getstacksize(&attributes, &stack);
  ::pthread_attr_setstacksize(&attributes, std::max(stack, smallest_stack));
  const int refused = ::pthread_create(thread, &attributes, run, with);
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return refused;
}

int start_detached_thread(void* (*run)(void*), void* with) {
  pthread_t thread{};
  const int refused = start_thread(&thread, run, with);
  if (refused == 0) ::pthread_detach(thread);
  return refused;
}

}  // namespace cuvmm
