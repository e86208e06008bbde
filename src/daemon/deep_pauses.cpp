// SPDX-License-Identifier: Apache-2.0
#include "daemon/deep_pauses.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace cuvmm::daemon {
namespace {

using node::ClientId;
using node::PresenceNow;
using node::PresenceStep;

PresenceStep step_of(share::ControlWhat what) {
  switch (what) {
    case share::ControlWhat::LeaveDevices:
      return PresenceStep::Leave;
    case share::ControlWhat::HasLeft:
      return PresenceStep::HasLeft;
    case share::ControlWhat::HasReturned:
      return PresenceStep::HasReturned;
    default:
      return PresenceStep::Look;
  }
}

share::Presence presence_of(PresenceNow now) {
  switch (now) {
    case PresenceNow::Leaving:
      return share::Presence::Leaving;
    case PresenceNow::OffDevices:
      return share::Presence::OffDevices;
    case PresenceNow::OnDevices:
      break;
  }
  return share::Presence::OnDevices;
}

constexpr const char* watching_helper = "watch a helper";
constexpr std::uint64_t never_began = 0;  // no client has this number

}  // namespace

Result<std::unique_ptr<DeepPauses>> DeepPauses::open(Links links) {
  std::unique_ptr<DeepPauses> made{new DeepPauses{std::move(links)}};
  made->epoll_ = TRY(share::opened_fd(::epoll_create1(EPOLL_CLOEXEC), watching_helper));
  made->some_never_began_ =
      TRY(share::opened_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), watching_helper));
  TRY(made->watch(made->some_never_began_.number(), never_began));
  return made;
}

Result<void> DeepPauses::watch(int descriptor, std::uint64_t id) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return share::system_error(watching_helper);
}

void DeepPauses::begin(ClientId client, DeepPauseWay way, const Peer& peer) {
  Helper& helper = helpers_[client];
  helper = {.way = way};
  const Result<void> begun = [&]() -> Result<void> {
    RunningHelper started = TRY(start_helper(way, peer));
    helper.process = started.process;
    helper.socket = std::move(started.socket);
    return watch(helper.socket.number(), client);
  }();
  if (begun.ok()) return;
  if (helper.process != 0) ending_.push_back(std::exchange(helper.process, 0));
  helper.report.emplace();
  if (way == DeepPauseWay::Off) helper.report->end = checkpoint::CheckpointEnd::OnDevices;
  helper.report->say(begun.error().text());
  const std::uint64_t one = 1;
  static_cast<void>(::write(some_never_began_.number(), &one, sizeof one));
}

void DeepPauses::answered(ClientId client, const node::PresenceAnswer& said) {
  const auto found = helpers_.find(client);
  if (found == helpers_.end() || found->second.awaits != said.number || said.number == 0) return;
  found->second.awaits = 0;
  share::ControlAnswer answer;
  answer.outcome = said.is_done ? share::ControlOutcome::Done : share::ControlOutcome::Refused;
  answer.presence = presence_of(said.now);
  std::copy_n(said.contexts.begin(), std::min(said.contexts.size(), answer.left.size()),
              answer.left.begin());
  answer.say(said.why_not);
  ::send(found->second.socket.number(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void DeepPauses::gone(ClientId client) {
  const auto found = helpers_.find(client);
  if (found == helpers_.end()) return;
  found->second.has_client = false;
  if (found->second.process != 0) ::shutdown(found->second.socket.number(), SHUT_WR);
}

void DeepPauses::handle() {
  std::array<epoll_event, 16> events{};
  const int count =
      ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id == never_began) end_those_that_never_began();
    const auto helper = helpers_.find(id);
    if (helper == helpers_.end()) continue;
    if (listen(helper->first, helper->second) == Listens::No) end(helper);
  }
}

void DeepPauses::end_those_that_never_began() {
  std::uint64_t number = 0;
  static_cast<void>(::read(some_never_began_.number(), &number, sizeof number));
  std::vector<ClientId> clients;
  for (const auto& [client, helper] : helpers_) {
    if (helper.process == 0) clients.push_back(client);
  }
  // Ending one helper may begin another, which changes helpers_.
  for (const ClientId client : clients) end(helpers_.find(client));
}

DeepPauses::Listens DeepPauses::listen(ClientId client, Helper& helper) {
  std::array<std::byte, sizeof(share::ControlRequest) + sizeof(HelperReport)> packet{};
  const ssize_t got =
      ::recv(helper.socket.number(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Listens::No;
  if (got == ssize_t{sizeof(HelperReport)}) {
    std::memcpy(&helper.report.emplace(), packet.data(), sizeof(HelperReport));
    helper.report->why.back() = '\0';
  }
  if (got != ssize_t{sizeof(share::ControlRequest)} || !helper.has_client) return Listens::Yes;
  share::ControlRequest request;
  std::memcpy(&request, packet.data(), sizeof request);
  helper.awaits = ++last_demand_;
  links_.say(client, {.number = helper.awaits,
                      .step = step_of(request.what),
                      .contexts = {request.left.begin(), request.left.end()}});
  return Listens::Yes;
}

void DeepPauses::end(Helpers::iterator helper) {
  const ClientId client = helper->first;
  Helper ended = std::move(helper->second);
  helpers_.erase(helper);
  const std::string how = ended.process != 0 ? reap(ended) : "";
  if (!ended.report) ended.report.emplace().say(how);
  if (ended.has_client) links_.ended(client, ended.way, *ended.report);
}

// A process that has closed its end of the socket has nearly ended, but the driver's files may take
// a while to close. If it has reported nothing, how it ended is all that a user will learn.
std::string DeepPauses::reap(const Helper& ended) {
  const pid_t process = ended.process;
  ending_.push_back(process);
  std::string how = "its helper ended without a report";
  const int looks = ended.report ? 20 : 1000;
  for (int i = 0; i < looks && !ending_.empty() && ending_.back() == process; ++i) {
    if (i != 0) ::usleep(500);
    std::erase_if(ending_, [&](pid_t one) {
      int status = 0;
      if (::waitpid(one, &status, WNOHANG) == 0) return false;
      if (one == process && WIFSIGNALED(status)) {
        how = "its helper was killed by signal " + std::to_string(WTERMSIG(status));
      }
      return true;
    });
  }
  return how;
}

}  // namespace cuvmm::daemon
