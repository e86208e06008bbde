// SPDX-License-Identifier: Apache-2.0
// Programs on the devices of one machine, in virtual time, that obey the policy of device time: the
// tests observe what runs when.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "node/time_policy.hpp"
#include "policy_world.hpp"

namespace cuvmm::test {

using namespace node;

inline TimeSettings by(TimeRule rule) {
  TimeSettings settings;
  settings.rule = rule;
  return settings;
}

// A program that launches kernels of one length, endlessly or in bursts.
struct TimeProgram {
  TimeTerms terms;
  Microseconds kernel = 50;
  std::vector<PlaceId> devices = {0};  // each kernel runs on all of them together
  Microseconds burst_every = 0;        // 0: always has work
  unsigned kernels_of_burst = 0;
  Microseconds reacts_after = 0;  // until it sees a new grant, or that its last work has ended
};

class TimeWorld {
 public:
  explicit TimeWorld(const TimeSettings& settings) : policy(settings) {}

  ClientId add(const TimeProgram& program);
  void kill(ClientId client);
  void stop(ClientId client);  // stops launching and reporting; its work in flight runs on
  void go_on(ClientId client);
  void set_terms(ClientId client, const TimeTerms& terms);
  void give_memory_turn(ClientId client, bool has) {
    tell(policy.has_memory_turn(client, has, now_));
  }
  void join(const std::vector<ClientId>& clients, const std::string& group) {
    std::map<ClientId, std::string> groups;
    for (const ClientId client : clients) groups[client] = group;
    tell(policy.groups_changed(groups, now_));
  }
  void run(Microseconds length);

  // Device time of the kernels that have ended since reset().
  Microseconds device_time(ClientId client) const { return programs_.at(client).ran; }
  double share(ClientId client) const;
  std::vector<Microseconds>& burst_times(ClientId client) { return programs_.at(client).bursts; }
  Microseconds longest_wait(ClientId client) const { return programs_.at(client).longest_wait; }
  void reset();
  Microseconds now() const { return now_; }
  std::uint64_t hand_overs() const { return hand_overs_; }

  TimePolicy policy;

 private:
  struct Flying {
    Microseconds submitted = 0;
  };
  struct Program {
    TimeProgram is;
    std::map<PlaceId, TimeDecision> grants;
    std::deque<Flying> flying;
    Microseconds ends_at = 0;  // end of the first of them
    Microseconds ran = 0;
    unsigned left_of_burst = 0;
    Microseconds next_burst = 0;
    Microseconds burst_began = 0;
    std::vector<Microseconds> bursts;
    Microseconds waits_since = 0;
    bool waits = false;
    Microseconds longest_wait = 0;
    bool runs = false;
    bool said_wants = false;
    bool is_stopped = false;
    bool owes_drained = false;
    Microseconds granted_at = 0;
    Microseconds ended_at = 0;  // its last kernel
  };

  void tell(const TimePolicy::Decisions& decisions);
  bool may_launch(const Program& program) const;
  bool has_work(const Program& program) const;
  void launch(ClientId id, Program& program);
  void execute();
  void look_for_stopped();
  bool others_have_work(ClientId client, PlaceId device) const;
  void report(ClientId id, Program& program);

  Microseconds now_ = 1;
  Microseconds holders_checked_at_ = 0;
  ClientId last_ = 0;
  std::map<ClientId, Program> programs_;
  std::map<PlaceId, ClientId> running_;  // whose kernel runs on the device
  std::map<PlaceId, ClientId> last_ran_;
  std::map<PlaceId, Microseconds> slice_began_;
  std::uint64_t hand_overs_ = 0;
};

}  // namespace cuvmm::test
