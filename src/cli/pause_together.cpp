// SPDX-License-Identifier: Apache-2.0
#include "cli/pause_together.hpp"

#include <poll.h>

#include <optional>

#include "node/group_pauses.hpp"
#include "share/packet.hpp"

namespace cuvmm::cli {
namespace {

using share::ControlAnswer;
using share::ControlConnection;
using share::ControlOutcome;
using share::ControlRequest;
using share::ControlWhat;
using share::Deadline;

class PauseTogether {
 public:
  explicit PauseTogether(Deadline until) : until_(until) {}

  std::map<int, Result<ControlAnswer>> run(const std::vector<int>& processes,
                                           ControlRequest request) {
    request.flags |= share::control_flag::together;
    for (const int process : processes) connect(process);
    for (const auto& one : open_) steps_.demanded(group, client_of(one.first), revision);
    for (const int process : processes) send(process, request);
    while (!open_.empty() && !until_.is_over()) hear_all();
    for (const auto& one : open_) {
      answers_.emplace(one.first, Error{.kind = ErrorKind::TimedOut, .doing = "control a process"});
    }
    return std::move(answers_);
  }

 private:
  static constexpr const char* group = "";
  static constexpr node::Revision revision = 1;
  static node::ClientId client_of(int process) { return static_cast<node::ClientId>(process); }

  void connect(int process) {
    auto connection = ControlConnection::open(process, until_);
    if (connection.ok()) {
      open_.emplace(process, std::move(*connection));
    } else {
      answers_.emplace(process, connection.error());
    }
  }

  // If this fails, so does the next receive().
  void send(int process, const ControlRequest& request) {
    const auto to = open_.find(process);
    if (to != open_.end()) static_cast<void>(to->second.send(request, until_).ok());
  }

  void hear_all() {
    std::vector<pollfd> waited;
    std::vector<int> processes;
    for (const auto& [process, connection] : open_) {
      waited.push_back({connection.socket().number(), POLLIN, 0});
      processes.push_back(process);
    }
    share::poll_files(waited, until_.milliseconds_left());
    for (const int process : processes) hear(process);
  }

  void hear(int process) {
    const auto said = open_.at(process).receive();
    if (said.ok() && !*said) return;
    if (!said.ok()) return end(process, said.error());
    const ControlAnswer& answer = **said;
    const bool has_ended_work = answer.outcome == ControlOutcome::EndedWork;
    if (!has_ended_work && answer.outcome != ControlOutcome::Works) return end(process, answer);
    steps_.reported(client_of(process), {revision, has_ended_work});
  }

  void end(int process, const Result<ControlAnswer>& answer) {
    answers_.emplace(process, answer);
    open_.erase(process);
    // Applied whatever it answers: the others pause all the same.
    steps_.ended(client_of(process), revision, node::ReclaimEnd::Applied);
  }

  const Deadline until_;
  std::map<int, ControlConnection> open_;
  std::map<int, Result<ControlAnswer>> answers_;
  node::GroupPauses steps_{[this](node::ClientId client, const node::NextGroupStep& next) {
    send(static_cast<int>(client),
         {.what = ControlWhat::Step, .step = static_cast<std::uint32_t>(next.step)});
  }};
};

}  // namespace

std::map<int, Result<ControlAnswer>> pause_together(const std::vector<int>& processes,
                                                    const ControlRequest& request, Deadline until) {
  return PauseTogether{until}.run(processes, request);
}

}  // namespace cuvmm::cli
