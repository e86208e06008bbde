// SPDX-License-Identifier: Apache-2.0
// Which party gets the devices next, and when a grant ends.
#include <algorithm>

#include "node/time_policy.hpp"

namespace cuvmm::node {
namespace {

constexpr std::uint64_t tag_unit = 10'000;  // the largest weight, so that no charge rounds to 0

bool have_common(const std::set<PlaceId>& a, const std::set<PlaceId>& b) {
  return std::any_of(a.begin(), a.end(), [&](PlaceId place) { return b.contains(place); });
}

}  // namespace

void TimePolicy::settle() {
  while (update_phases() | end_what_is_over() | start_waiting()) {
  }
}

bool TimePolicy::update_phases() {
  bool changed = false;
  for (auto& [name, party] : parties_) {
    if (party.phase == Phase::Idle && party.wants) {
      count_time(party);
      party.phase = Phase::Waiting;
      party.since = now_;
      party.goes_first = false;
      changed = true;
    } else if (party.phase == Phase::Waiting && !party.wants) {
      count_time(party);
      party.phase = Phase::Idle;
      changed = true;
    }
    if (party.phase == Phase::Idle) party.was_ready = false;
    if (party.phase != Phase::Waiting) continue;
    const bool is_ready = is_eligible(name, party) && !is_blocked_by_turn(party);
    // A party that returns after a while has saved no credit: it starts at its devices' current
    // tags.
    if (is_ready && !party.was_ready) {
      for (const PlaceId device : party.devices) {
        party.used = std::max(party.used, tag_at(device));
      }
    }
    party.was_ready = is_ready;
    // The longest wait counts from when the party became eligible.
    if (!is_eligible(name, party)) {
      party.since = now_;
    } else if (!party.goes_first && now_ >= party.since + settings_.longest_wait) {
      party.goes_first = changed = true;
    }
  }
  return changed;
}

bool TimePolicy::end_what_is_over() {
  bool changed = false;
  for (auto& [name, party] : parties_) {
    if (party.phase == Phase::Running) {
      const bool is_over = is_waited_for(party) && now_ >= party.since + quantum_of(party);
      const bool is_outranked =
          std::any_of(parties_.begin(), parties_.end(), [&, running = &party](const auto& other) {
            return is_eligible(other.first, other.second) && outranks(other.second, *running) &&
                   have_common(other.second.devices, running->granted);
          });
      const bool must_stop =
          is_outranked || (party.cap < 100 && now_ >= broke_at(party)) || cannot_run(party);
      const bool is_revoked = is_over || must_stop;
      if (!party.wants || (is_revoked && stands_above_all(party))) {
        finish(name, party);
        changed = true;
      } else if (is_over && !must_stop && would_be_next(party)) {
        count_time(party);
        party.since = now_;
      } else if (is_revoked) {
        revoke(party);
        changed = true;
      }
    }
    if (party.phase == Phase::Draining && (!is_undrained(party) || now_ >= drain_by(party))) {
      finish(name, party);
      changed = true;
    }
  }
  for (std::size_t i = 0; i < outlasting_.size();) {
    Outlasting& one = outlasting_[i];
    const Party& party = parties_.at(one.party);
    const bool is_gone = !is_undrained(party);
    const bool is_late = now_ >= one.until;
    if (!is_gone && !is_late) {
      ++i;
      continue;
    }
    // A stopped process cannot report that its work has ended, so this is no reason to suspend.
    const bool cannot_say =
        std::all_of(party.members.begin(), party.members.end(), [&](ClientId id) {
          return clients_.at(id).undrained.empty() || clients_.at(id).is_stopped;
        });
    const std::set<PlaceId> devices = one.devices;
    outlasting_.erase(outlasting_.begin() + static_cast<std::ptrdiff_t>(i));
    changed = true;
    if (!is_gone && !cannot_say) suspend(devices);
  }
  return changed;
}

void TimePolicy::suspend(const std::set<PlaceId>& devices) {
  for (const PlaceId device : devices) suspended_until_[device] = now_ + settings_.suspended_for;
  renew_devices();
}

// A party is not eligible while work that outlasted its quantum is still in flight.
bool TimePolicy::is_eligible(const std::string& name, const Party& party) const {
  if (party.phase != Phase::Waiting || is_broke(party) || cannot_run(party)) return false;
  return std::none_of(outlasting_.begin(), outlasting_.end(),
                      [&](const Outlasting& one) { return one.party == name; });
}

std::vector<std::string> TimePolicy::order_of_waiting() const {
  std::vector<std::string> names;
  for (const auto& [name, party] : parties_) {
    if (is_eligible(name, party)) names.push_back(name);
  }
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const Party& one = parties_.at(a);
    const Party& other = parties_.at(b);
    if (one.goes_first != other.goes_first) return one.goes_first;
    if (settings_.rule == TimeRule::Priority && one.priority != other.priority) {
      return one.priority > other.priority;
    }
    if (one.used != other.used) return one.used < other.used;
    return one.since < other.since;
  });
  return names;
}

// A party gets all its devices at once. While it waits for some of them, parties behind it get none
// of its devices.
bool TimePolicy::start_waiting() {
  bool changed = false;
  std::set<PlaceId> reserved;
  for (const std::string& name : order_of_waiting()) {
    Party& party = parties_.at(name);
    const std::set<PlaceId>& devices = party.devices;
    if (!party.goes_first && is_blocked_by_turn(party)) continue;
    if (!have_common(devices, reserved) && may_start(party, devices)) {
      start(party, devices);
      changed = true;
    }
    reserved.insert(devices.begin(), devices.end());
  }
  for (auto& [name, party] : parties_) {
    if (party.phase != Phase::Running) continue;
    for (const PlaceId device : party.devices) {
      if (party.granted.contains(device) || reserved.contains(device)) continue;
      if (!may_start(party, {device})) continue;
      party.granted.insert(device);
      changed = true;
    }
  }
  return changed;
}

bool TimePolicy::may_start(const Party& party, const std::set<PlaceId>& devices) const {
  return std::none_of(parties_.begin(), parties_.end(), [&](const auto& one) {
    const Party& other = one.second;
    if (&other == &party || !have_common(other.granted, devices)) return false;
    if (other.phase == Phase::Running) return true;
    // A party of lower priority has little in flight, so waiting for its drain report is not
    // worthwhile.
    const bool is_above = settings_.rule == TimeRule::Priority && party.priority > other.priority;
    return other.phase == Phase::Draining && !is_above;
  });
}

// A party that wants more devices than it has gets them only together.
bool TimePolicy::wants_more(const Party& party) const {
  return std::any_of(party.devices.begin(), party.devices.end(),
                     [&](PlaceId device) { return !party.granted.contains(device); });
}

// Whether the other party may get a device of the running one at the end of its quantum.
bool TimePolicy::waits_for(const std::string& name, const Party& other,
                           const Party& running) const {
  if (!is_eligible(name, other) || !have_common(other.devices, running.granted)) return false;
  if (other.goes_first) return true;
  if (is_blocked_by_turn(other)) return false;
  return settings_.rule != TimeRule::Priority || other.priority >= running.priority;
}

bool TimePolicy::is_waited_for(const Party& party) const {
  return wants_more(party) || std::any_of(parties_.begin(), parties_.end(), [&](const auto& one) {
           return waits_for(one.first, one.second, party);
         });
}

// A party that waited too long keeps its grant for the shortest quantum.
bool TimePolicy::outranks(const Party& waiting, const Party& running) const {
  if (settings_.rule != TimeRule::Priority || waiting.priority <= running.priority) return false;
  return !running.goes_first || now_ >= running.since + settings_.shortest_quantum;
}

// Whether the party, charged for its quantum, still comes before all that wait. It then keeps its
// grant: the device would idle while its work drains and until it launches again.
bool TimePolicy::would_be_next(const Party& party) const {
  if (party.goes_first || is_blocked_by_turn(party) || wants_more(party)) return false;
  const std::uint64_t tag = party.used + charge_of(party);
  return std::none_of(parties_.begin(), parties_.end(), [&](const auto& one) {
    const auto& [name, other] = one;
    return waits_for(name, other, party) && (other.goes_first || other.used <= tag);
  });
}

std::uint64_t TimePolicy::charge_of(const Party& party) const {
  return std::max<std::uint64_t>(1, (now_ - party.counted_until) * tag_unit / party.weight);
}

TimeUse TimePolicy::uncounted(const Party& party) const {
  const Microseconds passed = now_ - party.counted_until;
  return {.held = party.holds() ? passed : 0, .waited = party.phase == Phase::Waiting ? passed : 0};
}

void TimePolicy::count_time(Party& party) {
  const TimeUse passed = uncounted(party);
  for (const ClientId id : party.members) {
    TimeUse& use = clients_.at(id).use;
    use = use + passed;
  }
  party.credit = credit_of(party);
  if (party.holds()) {
    party.used += charge_of(party);
    if (party.cap < 100) party.credit -= to_credit(passed.held);
  }
  party.counted_until = now_;
}

void TimePolicy::start(Party& party, const std::set<PlaceId>& devices) {
  count_time(party);
  party.phase = Phase::Running;
  party.since = now_;
  party.granted = devices;
  for (const ClientId id : party.members) clients_.at(id).undrained.clear();
  for (const PlaceId device : devices) {
    std::uint64_t& last = last_tag_[device];
    last = std::max(last, party.used);
  }
}

void TimePolicy::revoke(Party& party) {
  party.phase = Phase::Draining;
  party.revoked_at = now_;
  party.drains_until = now_ + std::max(quantum_of(party), settings_.outlasts);
  for (const ClientId id : party.members) {
    Member& member = clients_.at(id);
    for (const PlaceId device : party.granted) {
      // A party that needs no grant there reports nothing.
      const bool reports = member.wants.contains(device) && party.devices.contains(device);
      if (reports) member.undrained.insert(device);
    }
  }
}

Microseconds TimePolicy::drain_by(const Party& party) const {
  Microseconds ends = party.revoked_at;
  for (const ClientId id : party.members) {
    const Member& member = clients_.at(id);
    if (!member.undrained.empty()) ends = std::max(ends, member.in_flight_until);
  }
  return std::min(ends, party.drains_until) + settings_.drain_grace;
}

bool TimePolicy::is_undrained(const Party& party) const {
  return std::any_of(party.members.begin(), party.members.end(),
                     [&](ClientId id) { return !clients_.at(id).undrained.empty(); });
}

void TimePolicy::finish(const std::string& name, Party& party) {
  count_time(party);
  for (const PlaceId device : party.granted) {
    const bool is_contested =
        std::any_of(parties_.begin(), parties_.end(), [&, self = &party](const auto& other) {
          return &other.second != self && other.second.phase != Phase::Idle &&
                 other.second.devices.contains(device);
        });
    // No party waits behind it there, so the next one starts at this party's tag.
    if (!is_contested) last_tag_[device] = std::max(last_tag_[device], party.used);
  }
  if (party.phase == Phase::Draining && is_undrained(party)) {
    // A party that had an Open grant until recently may have a long queue.
    const bool was_free =
        party.was_free_at != 0 && now_ < party.was_free_at + settings_.settles_within;
    const Microseconds until = was_free ? party.was_free_at + settings_.settles_within
                                        : party.revoked_at + settings_.outlasts;
    outlasting_.push_back({name, party.granted, until});
  }
  party.granted.clear();
  party.goes_first = false;
  party.since = now_;
  party.phase = party.wants ? Phase::Waiting : Phase::Idle;
}

// The device's position in weighted time, including its present holder's time.
std::uint64_t TimePolicy::tag_at(PlaceId device) const {
  const auto last = last_tag_.find(device);
  std::uint64_t tag = last == last_tag_.end() ? 0 : last->second;
  for (const auto& [name, party] : parties_) {
    if (party.granted.contains(device)) tag = std::max(tag, party.used + charge_of(party));
  }
  return tag;
}

Microseconds TimePolicy::quantum_of(const Party& party) const {
  if (party.goes_first) return settings_.shortest_quantum;
  std::uint64_t weights = 0;
  for (const auto& [name, other] : parties_) {
    const bool competes_now = &other == &party || (other.phase != Phase::Idle &&
                                                   have_common(other.devices, party.granted));
    if (competes_now) weights += other.weight;
  }
  return std::clamp(settings_.cycle * party.weight / std::max<std::uint64_t>(weights, 1),
                    settings_.shortest_quantum, settings_.longest_quantum);
}

// A cap is an allowance that grows with time.
std::int64_t TimePolicy::credit_of(const Party& party) const {
  const auto gained = static_cast<std::int64_t>((now_ - party.counted_until) * party.cap);
  return std::min(party.credit + gained, std::max(most_credit(), party.credit));
}

bool TimePolicy::is_broke(const Party& party) const {
  if (party.cap >= 100 || party.phase == Phase::Running) return false;
  return credit_of(party) < to_credit(settings_.cap_quantum);
}

// When a holder exhausts its allowance, or a waiting party has regained enough.
Microseconds TimePolicy::broke_at(const Party& party) const {
  if (party.phase == Phase::Running) {
    // The allowance grows and is spent at the same time.
    const std::int64_t left = std::clamp<std::int64_t>(party.credit, 0, most_credit());
    return party.counted_until + static_cast<Microseconds>(left) / (100 - party.cap);
  }
  const std::int64_t missing = to_credit(settings_.cap_quantum) - credit_of(party);
  if (missing <= 0) return now_;
  return now_ + static_cast<Microseconds>(missing) / party.cap + 1;
}

}  // namespace cuvmm::node
