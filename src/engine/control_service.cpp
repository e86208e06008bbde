// SPDX-License-Identifier: Apache-2.0
#include "engine/control_service.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/at_exit.hpp"
#include "base/log.hpp"
#include "base/start_thread.hpp"
#include "engine/control.hpp"

namespace cuvmm {
namespace {

constexpr Duration between_file_checks{60'000'000};

// The socket of this process, for use at exit, when no thread is joined.
std::atomic<share::ControlSocket*> open_socket{nullptr};

// Its owner.
std::atomic<Control*> controlled{nullptr};
std::atomic<bool> process_ends{false};

void close_socket() {
  process_ends.store(true);
  // A paused process still needs its socket: the rest of its exit may wait until it is resumed.
  // Refusing pauses comes first, so that the process cannot become paused unseen.
  if (Control* const control = controlled.load()) {
    control->refuse_pauses();
    if (control->may_need_resume()) return;
  }
  if (share::ControlSocket* const socket = open_socket.exchange(nullptr)) socket->remove();
}

// Whoever takes the socket out of open_socket has it alone. An exit in the meantime does not find
// it there; the socket is then closed here.
void keep_file_of(share::ControlSocket& socket) {
  const ClosesSocketOfEndingProcess closes_socket;
  if (open_socket.exchange(nullptr) == nullptr) return;
  socket.keep_file();
  open_socket.store(&socket);
}

template <class Report>
share::ControlAnswer as_answer(const Report& report) {
  share::ControlAnswer said;
  if (!report.ok()) {
    said.say(report.error().text());
    return said;
  }
  said.outcome = share::ControlOutcome::Done;
  copy_figures(*report, said);
  said.say(report->why);
  return said;
}

share::ControlAnswer pause(Control& control, Duration timeout, Strict strict,
                           const StillWanted& is_wanted, share::PauseCoordinator* coordinator) {
  share::ControlAnswer said;
  const auto attempt = [&](Duration within, const share::Fellows& fellows) -> Result<void> {
    const auto still_wanted = [&] { return is_wanted() && fellows.still_working(); };
    const auto paused =
        control.pause(within, strict, {.is_wanted = still_wanted, .may_move = fellows.may_move});
    said = as_answer(paused);
    if (!paused.ok()) return paused.error();
    return {};
  };
  if (coordinator != nullptr) {
    static_cast<void>(share::pause_with_group(*coordinator, timeout, attempt).ok());
  } else {
    static_cast<void>(attempt(timeout, {}).ok());
  }
  return said;
}

share::ControlAnswer answer(Control& control, const share::ControlRequest& request,
                            const StillWanted& is_wanted, share::PauseCoordinator* coordinator) {
  const Duration timeout{static_cast<Duration::rep>(
      std::min<std::uint64_t>(request.timeout_us, static_cast<std::uint64_t>(an_hour.count())))};
  const auto strict = (request.flags & share::control_flag::strict) != 0 ? Strict::Yes : Strict::No;
  const auto partly = (request.flags & share::control_flag::partly) != 0 ? Partly::Yes : Partly::No;
  share::ControlAnswer said;
  const auto before = control.is_paused() ? share::Before::Paused : share::Before::Running;
  switch (request.what) {
    case share::ControlWhat::Pause:
      said = pause(control, timeout, strict, is_wanted, coordinator);
      break;
    case share::ControlWhat::Resume:
      said = as_answer(control.resume(partly, Control::Asker::Command, timeout, is_wanted));
      break;
    default:
      said = control.agree(request);
  }
  said.is_paused = control.is_paused() ? 1 : 0;
  said.before = before;
  said.presence = control.presence();
  said.left = control.left_memory();
  if (said.outcome == share::ControlOutcome::Done) said.ready = control.ready_bytes();
  return said;
}

// For the thread of the socket. By the time that it runs, the exit may have taken open_socket.
struct CommandService {
  Control& control;
  share::ControlSocket& socket;
};

void* serve(void* given) {
  const std::unique_ptr<CommandService> service{static_cast<CommandService*>(given)};
  ::pthread_setname_np(::pthread_self(), "cuvmm-control");
  for (;;) {
    if (service->control.may_be_asked()) keep_file_of(service->socket);
    service->socket.serve(
        [&](const share::ControlRequest& request, const StillWanted& is_wanted,
            share::PauseCoordinator* coordinator) {
          return answer(service->control, request, is_wanted, coordinator);
        },
        share::Deadline::after(between_file_checks));
  }
}

}  // namespace

ClosesSocketOfEndingProcess::~ClosesSocketOfEndingProcess() {
  if (process_ends.load()) close_socket();
}

bool serve_commands(Control& control) {
  if (controlled.load() == &control) return !process_ends.load();
  auto opened = share::ControlSocket::open();
  if (!opened.ok()) {
    CUVMM_LOG(Warning, "%s; the process cannot be paused from outside",
              opened.error().text().c_str());
    return false;
  }
  controlled.store(&control);
  auto* const socket = new share::ControlSocket{std::move(*opened)};  // never freed
  open_socket.store(socket);
  control.expect_pauses();
  static constinit AtExit closes_socket{&close_socket};
  closes_socket.ensure();
  auto* const service = new CommandService{control, *socket};
  if (start_detached_thread(&serve, service) == 0) return true;
  delete service;
  controlled.store(nullptr);
  open_socket.store(nullptr);
  socket->remove();
  CUVMM_LOG(Warning,
            "cannot start the control socket's thread; the process cannot be paused from outside");
  return false;
}

}  // namespace cuvmm
