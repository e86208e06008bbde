// SPDX-License-Identifier: Apache-2.0
#include "engine/control.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/log.hpp"
#include "base/undo.hpp"
#include "engine/inside.hpp"

namespace cuvmm {
namespace {

constexpr Effect held_effects =
    Effect::Submits | Effect::Reads | Effect::Writes | Effect::Destroys | Effect::Exposes;

constexpr Duration an_hour{3600ll * 1'000'000};

// The socket of this process, for the process' end: nothing is joined then.
std::atomic<share::ControlSocket*> open_socket{nullptr};

void close_socket() {
  if (share::ControlSocket* const socket = open_socket.exchange(nullptr)) socket->remove();
}

template <class Report>
share::ControlAnswer as_answer(const Report& report) {
  share::ControlAnswer said;
  if (!report.ok()) {
    said.say(report.error().text());
    return said;
  }
  said.outcome = share::ControlOutcome::Done;
  said.moved = report->moved;
  said.stayed = report->stayed;
  said.took_us = report->took_us;
  said.held_us = report->held_us;
  said.say(report->why);
  return said;
}

}  // namespace

void HeldCalls::hold() {
  held_.store(1);
  watch_.begin(*this, held_effects);
}

void HeldCalls::let_go() {
  watch_.end(*this);
  held_.store(0);
  wake_all(held_);
}

CUresult HeldCalls::before(const CallSite&) {
  while (held_.load(std::memory_order_acquire) != 0) wait_while(held_, 1, std::chrono::seconds{1});
  return CUDA_SUCCESS;
}

Control::Control(const Driver& driver, Memory& memory, Gate& gate, Watch& watch,
                 std::function<bool()> is_scheduled)
    : held_calls_(watch),
      is_scheduled_(std::move(is_scheduled)),
      pauser_({driver, memory, gate, [this] { held_calls_.hold(); },
               [this] { held_calls_.let_go(); }}) {}

Result<PauseReport> Control::pause(Duration timeout, Strict strict) {
  if (is_busy_.test_and_set()) {
    return Error::invalid("pause", "another pause or resume is under way");
  }
  const Undo end{[this] { is_busy_.clear(); }};
  // Calls that it has taken already would not wait.
  if (is_scheduled_ && is_scheduled_()) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = "pause",
                 .subject = "its calls are scheduled (VMM_SCHEDULE)"};
  }
  const Inside inside;
  return pauser_.pause(timeout, strict);
}

Result<PauseReport> Control::resume(Duration timeout, Partly partly) {
  if (is_busy_.test_and_set()) {
    return Error::invalid("resume", "another pause or resume is under way");
  }
  const Undo end{[this] { is_busy_.clear(); }};
  const Inside inside;
  return pauser_.resume(timeout, partly);
}

share::ControlAnswer Control::answer(const share::ControlRequest& request) {
  const Duration timeout{static_cast<Duration::rep>(
      std::min<std::uint64_t>(request.timeout_us, static_cast<std::uint64_t>(an_hour.count())))};
  const bool strict = (request.flags & share::control_flag::strict) != 0;
  const bool partly = (request.flags & share::control_flag::partly) != 0;
  share::ControlAnswer said;
  switch (request.what) {
    case share::ControlWhat::Pause:
      said = as_answer(pause(timeout, strict ? Strict::Yes : Strict::No));
      break;
    case share::ControlWhat::Resume:
      said = as_answer(resume(timeout, partly ? Partly::Yes : Partly::No));
      break;
    case share::ControlWhat::State:
      said.outcome = share::ControlOutcome::Done;
      said.moved = pauser_.paused_bytes();
      break;
    default:
      said.say("no such request");
  }
  said.is_paused = pauser_.is_paused() ? 1 : 0;
  return said;
}

void Control::start() {
  auto opened = share::ControlSocket::open(::getpid());
  if (!opened.ok()) {
    CUVMM_LOG(Warning, "%s; the process cannot be paused from outside",
              opened.error().text().c_str());
    return;
  }
  open_socket.store(new share::ControlSocket{std::move(*opened)});  // lives as long as the process
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) std::atexit(&close_socket);
  // The program's signals are the business of its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const int refused = ::pthread_create(&thread, nullptr, &Control::serve, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (refused == 0) {
    ::pthread_detach(thread);
    return;
  }
  close_socket();
  CUVMM_LOG(Warning, "no thread for the control socket; the process cannot be paused from outside");
}

void* Control::serve(void* control) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-control");
  auto& self = *static_cast<Control*>(control);
  share::ControlSocket* const socket = open_socket.load();
  if (socket == nullptr) return nullptr;
  for (;;) {
    socket->serve([&](const share::ControlRequest& request) { return self.answer(request); },
                  share::Deadline::after(an_hour));
  }
}

}  // namespace cuvmm
