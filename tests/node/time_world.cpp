// SPDX-License-Identifier: Apache-2.0
#include "time_world.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::test {
namespace {

constexpr Microseconds tick = 10;
constexpr Microseconds slice = 2'000;
constexpr Microseconds check_every = 100'000;

}  // namespace

ClientId TimeWorld::add(const TimeProgram& program) {
  const ClientId id = ++last_;
  Program& added = programs_[id];
  added.is = program;
  added.next_burst = now_;
  for (const PlaceId device : program.devices) added.grants[device].grant = TimeGrant::Open;
  tell(policy.came(id, program.terms, now_));
  for (const PlaceId device : program.devices) tell(policy.uses(id, device, now_));
  return id;
}

void TimeWorld::kill(ClientId client) {
  programs_.erase(client);
  std::erase_if(running_, [&](const auto& one) { return one.second == client; });
  tell(policy.left(client, now_));
}

void TimeWorld::stop(ClientId client) {
  programs_.at(client).is_stopped = true;
}

void TimeWorld::go_on(ClientId client) {
  programs_.at(client).is_stopped = false;
  tell(policy.is_stopped(client, false, now_));
}

void TimeWorld::set_terms(ClientId client, const TimeTerms& terms) {
  tell(policy.terms_changed(client, terms, now_));
}

void TimeWorld::tell(const TimePolicy::Decisions& decisions) {
  for (const TimeDecision& decision : decisions) {
    const auto found = programs_.find(decision.client);
    if (found == programs_.end()) continue;
    const TimeGrant before = found->second.grants[decision.device].grant;
    found->second.grants[decision.device] = decision;
    if (decision.grant == TimeGrant::None) found->second.owes_drained = true;
    if (before == TimeGrant::None && decision.grant == TimeGrant::Held) {
      found->second.granted_at = now_;
      ++hand_overs_;
    }
  }
}

bool TimeWorld::has_work(const Program& program) const {
  return program.is.burst_every == 0 || program.left_of_burst != 0;
}

bool TimeWorld::may_launch(const Program& program) const {
  if (now_ < program.granted_at + program.is.reacts_after) return false;
  return std::all_of(program.grants.begin(), program.grants.end(), [&](const auto& one) {
    const TimeDecision& grant = one.second;
    if (grant.grant == TimeGrant::None) return false;
    const Microseconds in_flight = program.flying.size() * program.is.kernel;
    if (grant.grant == TimeGrant::Open || grant.window == 0) return program.flying.size() < 64;
    return program.flying.empty() || in_flight + program.is.kernel <= grant.window;
  });
}

void TimeWorld::launch(ClientId id, Program& program) {
  if (program.is_stopped) return;
  if (program.is.burst_every != 0 && now_ >= program.next_burst && program.left_of_burst == 0 &&
      program.flying.empty()) {
    program.left_of_burst = program.is.kernels_of_burst;
    program.burst_began = program.next_burst;
    program.next_burst += program.is.burst_every;
  }
  while (has_work(program) && may_launch(program)) {
    program.flying.push_back({now_});
    if (program.left_of_burst != 0) --program.left_of_burst;
  }
  const bool waits = has_work(program) && program.flying.empty();
  if (waits && !program.waits) program.waits_since = now_;
  program.waits = waits;
  if (waits) program.longest_wait = std::max(program.longest_wait, now_ - program.waits_since);
  report(id, program);
}

// What a program reports about itself, on each change.
void TimeWorld::report(ClientId id, Program& program) {
  const bool is_open =
      std::all_of(program.grants.begin(), program.grants.end(),
                  [](const auto& one) { return one.second.grant == TimeGrant::Open; });
  if (is_open) return;  // the policy does not look then
  const bool wants = has_work(program) || !program.flying.empty();
  if (!program.flying.empty()) {
    policy.in_flight_until(id, now_ + program.flying.size() * program.is.kernel);
  }
  if (wants != program.said_wants) {
    program.said_wants = wants;
    for (const PlaceId device : program.is.devices) tell(policy.wants(id, device, wants, now_));
  }
  const bool has_seen_the_end = now_ >= program.ended_at + program.is.reacts_after;
  if (program.owes_drained && program.flying.empty() && has_seen_the_end) {
    program.owes_drained = false;
    for (const PlaceId device : program.is.devices) tell(policy.drained(id, device, now_));
  }
}

// Devices alternate between programs with kernels in flight, as a card does.
void TimeWorld::execute() {
  for (auto& [id, program] : programs_) {
    if (program.flying.empty() || program.runs) continue;
    const bool is_free = std::none_of(
        program.is.devices.begin(), program.is.devices.end(), [&, id = id](PlaceId device) {
          const bool was_last = last_ran_[device] == id && now_ - slice_began_[device] >= slice;
          return running_.contains(device) || (was_last && others_have_work(id, device));
        });
    if (!is_free) continue;
    for (const PlaceId device : program.is.devices) {
      running_[device] = id;
      if (std::exchange(last_ran_[device], id) != id) slice_began_[device] = now_;
    }
    program.runs = true;
    program.ends_at = now_ + program.is.kernel;
  }
  now_ += tick;
  for (auto& [id, program] : programs_) {
    while (program.runs && program.ends_at <= now_) {
      program.flying.pop_front();
      program.ran += program.is.kernel;
      program.ended_at = now_;
      program.runs = false;
      for (const PlaceId device : program.is.devices) running_.erase(device);
      const bool burst_is_over =
          program.flying.empty() && program.is.burst_every != 0 && program.left_of_burst == 0;
      if (burst_is_over) program.bursts.push_back(now_ - program.burst_began);
    }
  }
}

bool TimeWorld::others_have_work(ClientId client, PlaceId device) const {
  return std::any_of(programs_.begin(), programs_.end(), [&](const auto& one) {
    const auto& devices = one.second.is.devices;
    return one.first != client && !one.second.flying.empty() &&
           std::find(devices.begin(), devices.end(), device) != devices.end();
  });
}

void TimeWorld::run(Microseconds length) {
  const Microseconds until = now_ + length;
  while (now_ < until) {
    for (auto& [id, program] : programs_) launch(id, program);
    execute();
    const auto wake = policy.next_wake();
    const bool is_due = now_ >= holders_checked_at_ + check_every;
    if (!is_due && (!wake || *wake > now_)) continue;
    look_for_stopped();
    tell(policy.passed(now_));
  }
}

// As the service does.
void TimeWorld::look_for_stopped() {
  std::vector<ClientId> silent = policy.undrained();
  if (now_ >= holders_checked_at_ + check_every) {
    holders_checked_at_ = now_;
    const std::vector<ClientId> holders = policy.holders_others_wait_for();
    silent.insert(silent.end(), holders.begin(), holders.end());
  }
  for (const ClientId id : silent) {
    const auto found = programs_.find(id);
    const bool is_stopped = found != programs_.end() && found->second.is_stopped;
    tell(policy.is_stopped(id, is_stopped, now_));
  }
}

double TimeWorld::share(ClientId client) const {
  Microseconds all = 0;
  for (const auto& [id, program] : programs_) all += program.ran;
  return all == 0 ? 0 : static_cast<double>(device_time(client)) / static_cast<double>(all);
}

void TimeWorld::reset() {
  for (auto& [id, program] : programs_) {
    program.ran = 0;
    program.longest_wait = 0;
    program.waits_since = now_;
    program.bursts.clear();
  }
}

}  // namespace cuvmm::test
