// SPDX-License-Identifier: Apache-2.0
// How the time policy handles events, and what each client may do as a result.
#include "node/time_policy.hpp"

#include <algorithm>

namespace cuvmm::node {

TimePolicy::Decisions TimePolicy::configure(const TimeSettings& settings, Microseconds now) {
  settings_ = settings;
  return decide(now);
}

namespace {

std::string party_of(ClientId client, const std::string& group) {
  return group.empty() ? "#" + std::to_string(client) : "=" + group;
}

}  // namespace

TimePolicy::Decisions TimePolicy::came(ClientId client, const TimeTerms& terms, Microseconds now) {
  now_ = std::max(now_, now);
  Member& member = clients_[client];
  member.terms = terms;
  member.party = party_of(client, terms.group);
  const bool is_new = !parties_.contains(member.party);
  Party& party = parties_[member.party];
  if (is_new) {
    party.credit = to_credit(settings_.cap_quantum);
    party.counted_until = now_;
  }
  count_time(party);
  party.members.insert(client);
  renew_terms(party);
  return decide(now);
}

TimePolicy::Decisions TimePolicy::terms_changed(ClientId client, const TimeTerms& terms,
                                                Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  now_ = std::max(now_, now);
  Party& party = parties_.at(found->second.party);
  count_time(party);
  const std::string group = found->second.terms.group;
  found->second.terms = terms;
  found->second.terms.group = group;
  renew_terms(party);
  return decide(now);
}

TimePolicy::Decisions TimePolicy::left(ClientId client, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  now_ = std::max(now_, now);
  leave_party(client);
  clients_.erase(found);
  return decide(now);
}

void TimePolicy::leave_party(ClientId client) {
  const std::string name = clients_.at(client).party;
  Party& party = parties_.at(name);
  count_time(party);
  party.members.erase(client);
  if (party.members.empty()) {
    std::erase_if(outlasting_, [&](const Outlasting& one) { return one.party == name; });
    parties_.erase(name);
  } else {
    renew_terms(party);
  }
}

TimePolicy::Decisions TimePolicy::groups_changed(const std::map<ClientId, std::string>& groups,
                                                 Microseconds now) {
  now_ = std::max(now_, now);
  for (const auto& [client, group] : groups) {
    if (clients_.contains(client)) move_to_party_of(client, group);
  }
  return decide(now);
}

// A client cannot gain time by moving: its new party counts as having used at least as much as the
// one that the client leaves. The client's grant stays behind, so it waits with its new party.
void TimePolicy::move_to_party_of(ClientId client, const std::string& group) {
  Member& member = clients_.at(client);
  member.terms.group = group;
  const std::string name = party_of(client, group);
  if (name == member.party) return;
  Party& before = parties_.at(member.party);
  count_time(before);
  Party own;
  own.used = before.used;
  own.was_free_at = before.was_free_at;
  own.credit = before.credit;
  own.counted_until = now_;
  leave_party(client);
  member.party = name;
  member.undrained.clear();
  Party& party = parties_.try_emplace(name, own).first->second;
  count_time(party);
  party.used = std::max(party.used, own.used);
  party.was_free_at = std::max(party.was_free_at, own.was_free_at);
  party.members.insert(client);
  renew_terms(party);
}

TimePolicy::Decisions TimePolicy::uses(ClientId client, PlaceId device, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  found->second.wanted_at.try_emplace(device, 0);
  return decide(now);
}

TimePolicy::Decisions TimePolicy::wants(ClientId client, PlaceId device, bool does,
                                        Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  Member& member = found->second;
  // Also set when the client stops wanting the device, since it has used it until now.
  member.wanted_at[device] = std::max<Microseconds>(now, 1);
  if (does) {
    member.wants.try_emplace(device, now);
    return decide(now);
  }
  if (const auto wanted = member.wants.find(device); wanted != member.wants.end()) {
    const Microseconds burst = now - std::min(now, wanted->second + wants_after_work);
    const auto [usual, is_first] = member.usual_burst.try_emplace(device, burst);
    if (!is_first) usual->second = (7 * usual->second + burst) / 8;
    member.wants.erase(wanted);
  }
  member.undrained.erase(device);
  return decide(now);
}

TimePolicy::Decisions TimePolicy::drained(ClientId client, PlaceId device, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  found->second.undrained.erase(device);
  return decide(now);
}

void TimePolicy::in_flight_until(ClientId client, Microseconds when) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) found->second.in_flight_until = when;
}

TimePolicy::Decisions TimePolicy::is_stopped(ClientId client, bool is, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end() || found->second.is_stopped == is) return {};
  found->second.is_stopped = is;
  return decide(now);
}

TimePolicy::Decisions TimePolicy::has_memory_turn(ClientId client, bool has, Microseconds now) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  found->second.has_memory_turn = has;
  return decide(now);
}

TimePolicy::Decisions TimePolicy::passed(Microseconds now) {
  return decide(now);
}

bool TimePolicy::is_suspended(PlaceId device) const {
  const auto found = suspended_until_.find(device);
  return found != suspended_until_.end() && now_ < found->second;
}

TimeGrant TimePolicy::grant_of(ClientId client, PlaceId device) const {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return TimeGrant::Open;
  const auto told = found->second.told.find(device);
  return told == found->second.told.end() ? TimeGrant::Open : told->second.grant;
}

TimeUse TimePolicy::use_of(ClientId client) const {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  return found->second.use + uncounted(parties_.at(found->second.party));
}

bool TimePolicy::is_over_cap(ClientId client) const {
  const auto found = clients_.find(client);
  return found != clients_.end() && is_broke(parties_.at(found->second.party));
}

std::vector<ClientId> TimePolicy::above(ClientId client, PlaceId device) const {
  std::vector<ClientId> found;
  const auto known = clients_.find(client);
  if (known == clients_.end()) return found;
  const Party& party = parties_.at(known->second.party);
  for (const auto& [id, member] : clients_) {
    const Party& other = parties_.at(member.party);
    // A party with a cap may itself have to wait, so nobody defers to it.
    const bool is_above = other.priority > party.priority && other.cap >= 100;
    if (is_above && !member.is_stopped && member.wanted_at.contains(device)) found.push_back(id);
  }
  return found;
}

std::vector<ClientId> TimePolicy::undrained() const {
  std::vector<ClientId> found;
  for (const auto& [id, member] : clients_) {
    if (!member.undrained.empty()) found.push_back(id);
  }
  return found;
}

std::vector<ClientId> TimePolicy::holders_others_wait_for() const {
  std::vector<ClientId> found;
  if (!has_waiting()) return found;
  for (const auto& [id, member] : clients_) {
    if (parties_.at(member.party).phase == Phase::Running) found.push_back(id);
  }
  return found;
}

bool TimePolicy::has_waiting() const {
  return std::any_of(parties_.begin(), parties_.end(),
                     [](const auto& one) { return one.second.phase == Phase::Waiting; });
}

// A group has the highest weight, the highest priority and the lowest cap of its members.
void TimePolicy::renew_terms(Party& party) {
  party.weight = 1;
  party.priority = -1'000'000;
  party.cap = 100;
  for (const ClientId id : party.members) {
    const TimeTerms& terms = clients_.at(id).terms;
    party.weight = std::max(party.weight, terms.weight);
    party.priority = std::max(party.priority, terms.priority);
    party.cap = std::min(party.cap, std::max(terms.cap, 1U));
  }
}

// A context alone gives no claim to a device; only work does.
void TimePolicy::renew_devices() {
  for (auto& [name, party] : parties_) {
    party.devices.clear();
    party.wants = false;
    for (const ClientId id : party.members) {
      const Member& member = clients_.at(id);
      for (const auto& [device, at] : member.wanted_at) {
        if (is_suspended(device) || !competes(party, device) || is_free(party, device)) continue;
        party.devices.insert(device);
        party.wants |= member.wants.contains(device);
      }
    }
  }
}

bool TimePolicy::uses_device(const Party& party, PlaceId device) const {
  return std::any_of(party.members.begin(), party.members.end(),
                     [&](ClientId id) { return clients_.at(id).wanted_at.contains(device); });
}

bool TimePolicy::competes(const Party& party, PlaceId device) const {
  return std::any_of(party.members.begin(), party.members.end(), [&](ClientId id) {
    const Member& member = clients_.at(id);
    const auto at = member.wanted_at.find(device);
    if (at == member.wanted_at.end() || at->second == 0) return false;
    return member.wants.contains(device) || now_ < at->second + settings_.remembered;
  });
}

bool TimePolicy::is_free(const Party& party, PlaceId device) const {
  if (party.cap < 100) return false;
  if (settings_.rule == TimeRule::Off) return true;
  bool is_alone = true;
  for (const auto& [name, other] : parties_) {
    if (&other == &party || !uses_device(other, device)) continue;
    is_alone = false;
    if (competes(other, device)) return false;
  }
  if (is_alone) return true;
  // While a grant is Open, nobody sees what its holder does.
  const bool was_open = std::any_of(party.members.begin(), party.members.end(), [&](ClientId id) {
    const auto told = clients_.at(id).told.find(device);
    return told != clients_.at(id).told.end() && told->second.grant == TimeGrant::Open;
  });
  if (competes(party, device)) return true;
  if (!was_open) return false;
  // Only one party that has not been seen at work may keep an Open grant.
  return std::none_of(parties_.begin(), parties_.end(), [&](const auto& other) {
    return &other.second != &party &&
           std::any_of(other.second.members.begin(), other.second.members.end(), [&](ClientId id) {
             const auto told = clients_.at(id).told.find(device);
             return told != clients_.at(id).told.end() && told->second.grant == TimeGrant::Open;
           });
  });
}

// Returns 0 if none of the device's parties has a higher priority. Work in flight delays the bursts
// of those parties, so the window must be short compared to a burst. But it has a minimum: a
// program that cannot queue its work ahead leaves gaps on the device.
Microseconds TimePolicy::window_below_others(const Party& party, PlaceId device) const {
  std::optional<Microseconds> shortest_burst;
  bool is_below = false;
  for (const auto& [id, member] : clients_) {
    const bool is_above = parties_.at(member.party).priority > party.priority;
    if (!is_above || !member.wanted_at.contains(device)) continue;
    is_below = true;
    const auto burst = member.usual_burst.find(device);
    if (burst == member.usual_burst.end()) continue;
    shortest_burst = std::min(shortest_burst.value_or(burst->second), burst->second);
  }
  if (!is_below) return 0;
  constexpr Microseconds step = 50;  // so that not every burst changes it
  const Microseconds share = shortest_burst.value_or(0) / 8 / step * step;
  return std::clamp(share, settings_.shortest_window, settings_.window);
}

bool TimePolicy::cannot_run(const Party& party) const {
  return std::any_of(party.members.begin(), party.members.end(), [&](ClientId id) {
    const Member& member = clients_.at(id);
    return member.is_stopped && !member.wants.empty();
  });
}

// Under the Priority rule, such a party need not wait for a grant.
bool TimePolicy::stands_above_all(const Party& party) const {
  if (settings_.rule != TimeRule::Priority || party.cap < 100 || cannot_run(party)) return false;
  for (const auto& [name, other] : parties_) {
    if (&other == &party || other.priority < party.priority) continue;
    for (const ClientId id : party.members) {
      for (const auto& [device, at] : clients_.at(id).wanted_at) {
        if (uses_device(other, device)) return false;
      }
    }
  }
  return true;
}

bool TimePolicy::is_blocked_by_turn(const Party& party) const {
  if (settings_.rule != TimeRule::Turns) return false;
  const auto has_turn = [&](const Party& one) {
    return std::any_of(one.members.begin(), one.members.end(),
                       [&](ClientId id) { return clients_.at(id).has_memory_turn; });
  };
  if (has_turn(party)) return false;
  return std::any_of(parties_.begin(), parties_.end(), [&](const auto& other) {
    return has_turn(other.second) && other.second.wants && !cannot_run(other.second) &&
           std::any_of(party.devices.begin(), party.devices.end(),
                       [&](PlaceId device) { return other.second.devices.contains(device); });
  });
}

TimeDecision TimePolicy::desired(ClientId client, const Member& member, PlaceId device) const {
  const Party& party = parties_.at(member.party);
  TimeDecision wish{.client = client, .device = device};
  if (is_free(party, device)) {
    wish.grant = TimeGrant::Open;
    return wish;
  }
  // Keep queues short during a suspension, so that the quanta after it do not start with long ones.
  if (is_suspended(device)) {
    wish.grant = TimeGrant::Held;
    wish.window = settings_.suspended_window;
    return wish;
  }
  const bool stands = stands_above_all(party);
  const bool holds = party.phase == Phase::Running && party.granted.contains(device);
  if (!stands && !holds) return wish;
  wish.grant = TimeGrant::Held;
  const Microseconds below_others =
      settings_.rule == TimeRule::Priority ? window_below_others(party, device) : 0;
  wish.window = stands ? 0 : below_others != 0 ? below_others : settings_.window;
  wish.yields = below_others != 0 && !party.goes_first;
  return wish;
}

TimePolicy::Decisions TimePolicy::decide(Microseconds now) {
  now_ = std::max(now_, now);
  renew_devices();
  settle();
  Decisions changed;
  // Revoke before granting.
  for (const bool gains : {false, true}) {
    for (auto& [id, member] : clients_) {
      for (const auto& [device, at] : member.wanted_at) {
        const TimeDecision wish = desired(id, member, device);
        const auto [told, is_new] = member.told.try_emplace(
            device, TimeDecision{.client = id, .device = device, .grant = TimeGrant::Open});
        if (told->second == wish) continue;
        if ((wish.grant != TimeGrant::None) != gains) continue;
        if (told->second.grant == TimeGrant::Open && !is_new) {
          parties_.at(member.party).was_free_at = now_;
        }
        told->second = wish;
        changed.push_back(wish);
      }
    }
  }
  return changed;
}

std::optional<Microseconds> TimePolicy::next_wake() const {
  std::optional<Microseconds> next;
  const auto at = [&](Microseconds when) {
    when = std::max(when, now_ + 1);
    if (!next || when < *next) next = when;
  };
  for (const auto& [name, party] : parties_) {
    switch (party.phase) {
      case Phase::Running:
        if (party.cap < 100) at(broke_at(party));
        if (is_waited_for(party)) at(party.since + quantum_of(party));
        break;
      case Phase::Draining:
        at(drain_by(party));
        break;
      case Phase::Waiting:
        if (is_broke(party)) at(broke_at(party));
        if (!party.goes_first && is_eligible(name, party)) {
          at(party.since + settings_.longest_wait);
        }
        break;
      case Phase::Idle:
        break;
    }
  }
  for (const Outlasting& one : outlasting_) at(one.until);
  for (const auto& [device, until] : suspended_until_) {
    if (now_ < until) at(until);
  }
  for (const auto& [id, member] : clients_) {
    for (const auto& [device, wanted] : member.wanted_at) {
      const Microseconds forgotten = wanted + settings_.remembered;
      if (wanted != 0 && !member.wants.contains(device) && now_ < forgotten) at(forgotten);
    }
  }
  return next;
}

}  // namespace cuvmm::node
