// SPDX-License-Identifier: Apache-2.0
#include "cli/pause_together.hpp"

#include <poll.h>

#include <algorithm>
#include <set>
#include <string>

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

// A process whose work has not ended within the timeout keeps the others from pausing no longer.
// They get this much more time to hold their calls once more.
Duration time_without_it(Duration timeout) {
  return std::clamp(timeout / 4, Duration{200'000}, Duration{2'000'000});
}
// A process that has not answered this long after that does not answer at all.
constexpr Duration for_the_answer{2'000'000};

class PauseTogether {
 public:
  PauseTogether(Duration timeout, Deadline until)
      : timeout_(Deadline::after(timeout)),
        answer_due_(Deadline::after(timeout + time_without_it(timeout) + for_the_answer)),
        until_(until) {}

  std::map<int, Result<ControlAnswer>> run(const std::vector<int>& processes,
                                           const ControlRequest& request) {
    // A process gives up on a visitor that says nothing.
    for (const int process : processes) ask(process, request);
    while (!open_.empty() && !until_.is_over()) {
      hear_all();
      if (timeout_.is_over()) go_on_without_those_that_work();
      if (answer_due_.is_over()) give_up_those_that_do_not_answer();
    }
    for (const auto& one : open_) answers_.emplace(one.first, no_answer());
    return std::move(answers_);
  }

 private:
  struct Member {
    ControlConnection connection;
    bool works = false;  // by its last report
    bool moves = false;
  };

  static constexpr node::Revision revision = 1;
  static node::ClientId client_of(int process) { return static_cast<node::ClientId>(process); }
  static Error no_answer() { return {.kind = ErrorKind::TimedOut, .doing = "control a process"}; }

  void ask(int process, const ControlRequest& request) {
    auto connection = ControlConnection::open(process, until_);
    if (!connection.ok()) {
      answers_.emplace(process, connection.error());
      return;
    }
    open_.emplace(process, Member{std::move(*connection)});
    steps_.demanded("", client_of(process), revision);
    send(process, request);
  }

  // If this fails, so does the next receive().
  void send(int process, const ControlRequest& request) {
    const auto to = open_.find(process);
    if (to != open_.end()) static_cast<void>(to->second.connection.send(request, until_).ok());
  }

  void say(int process, GroupStep step) {
    const auto to = open_.find(process);
    if (to != open_.end()) to->second.moves |= step == GroupStep::Move;
    send(process, {.what = ControlWhat::Step, .step = static_cast<std::uint32_t>(step)});
  }

  std::vector<int> processes() const {
    std::vector<int> all;
    for (const auto& one : open_) all.push_back(one.first);
    return all;
  }

  void hear_all() {
    constexpr int longest_ms = 100;
    std::vector<pollfd> waited;
    for (const auto& one : open_) {
      waited.push_back({one.second.connection.socket().number(), POLLIN, 0});
    }
    share::poll_files(waited, std::min(longest_ms, until_.milliseconds_left()));
    for (const int process : processes()) hear(process);
  }

  void hear(int process) {
    Member& member = open_.at(process);
    const auto said = member.connection.receive();
    if (said.ok() && !*said) return;
    if (!said.ok()) return end(process, said.error());
    const ControlAnswer& answer = **said;
    const bool has_ended_work = answer.outcome == ControlOutcome::EndedWork;
    member.works = answer.outcome == ControlOutcome::Works;
    if (!has_ended_work && !member.works) return end(process, answer);
    steps_.reported(client_of(process), {revision, has_ended_work, answer.steps_heard});
  }

  // Applied whatever a process answers: the others pause all the same.
  void leave_group(int process) {
    steps_.ended(client_of(process), revision, node::ReclaimEnd::Applied);
  }

  void end(int process, const Result<ControlAnswer>& answer) {
    answers_.emplace(process, answer);
    open_.erase(process);
    leave_group(process);
  }

  // They may still pause, each by itself.
  void go_on_without_those_that_work() {
    for (const int process : processes()) {
      if (!open_.at(process).works || !alone_.insert(process).second) continue;
      leave_group(process);
      steps_.demanded(std::to_string(process), client_of(process), revision);
    }
  }

  void give_up_those_that_do_not_answer() {
    for (const int process : processes()) {
      if (!open_.at(process).moves) end(process, no_answer());
    }
  }

  const Deadline timeout_;
  const Deadline answer_due_;
  const Deadline until_;
  std::map<int, Member> open_;
  std::set<int> alone_;
  std::map<int, Result<ControlAnswer>> answers_;
  node::GroupPauses steps_{[this](node::ClientId client, const node::NextGroupStep& next) {
    say(static_cast<int>(client), next.step);
  }};
};

}  // namespace

std::map<int, Result<ControlAnswer>> pause_together(const std::vector<int>& processes,
                                                    ControlRequest request, Duration timeout,
                                                    Deadline until) {
  request.flags |= share::control_flag::together;
  request.timeout_us = static_cast<std::uint64_t>((timeout + time_without_it(timeout)).count());
  return PauseTogether{timeout, until}.run(processes, request);
}

}  // namespace cuvmm::cli
