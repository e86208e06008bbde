// SPDX-License-Identifier: Apache-2.0
#include "sim/guard.hpp"

#include <sched.h>

#include <mutex>

namespace cuvmm::sim {
namespace {

struct sigaction before_segv;
struct sigaction before_bus;

// Odd during a pause. A fault that a pause may have caused is retried once after it.
std::atomic<std::uint64_t> pauses{0};
std::mutex one_pause;

// Whether kill() or raise() sent the signal, rather than an access raising it.
bool was_sent(const siginfo_t& what) {
  return what.si_code <= 0;
}

void hand_on(int signal, siginfo_t* what, void* context) {
  const struct sigaction& before = signal == SIGBUS ? before_bus : before_segv;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, what, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else if (!was_sent(*what) || before.sa_handler == SIG_DFL) {
    sigaction(signal, &before, nullptr);  // the access faults again on return and ends the program
    if (was_sent(*what)) raise(signal);
  }
}

}  // namespace

thread_local Guard::Frame* Guard::outermost_ = nullptr;

void Guard::on_fault(int signal, siginfo_t* what, void* context) {
  Frame* frame = outermost_;
  if (frame == nullptr || was_sent(*what)) {
    hand_on(signal, what, context);
    return;
  }
  std::uint64_t now = pauses.load();
  if (now != frame->pauses_seen) {
    while ((now & 1) != 0) {
      sched_yield();
      now = pauses.load();
    }
    frame->pauses_seen = now;
    return;  // retries the access
  }
  siglongjmp(frame->back, 1);
}

void Guard::abandon() {
  siglongjmp(outermost_->back, 1);
}

void Guard::install() {
  struct sigaction ours {};
  ours.sa_sigaction = &Guard::on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, &before_segv);
  sigaction(SIGBUS, &ours, &before_bus);
}

Guard::Pause::Pause() {
  one_pause.lock();
  ++pauses;
}

Guard::Pause::~Pause() {
  ++pauses;
  one_pause.unlock();
}

}  // namespace cuvmm::sim
