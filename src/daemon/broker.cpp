// SPDX-License-Identifier: Apache-2.0
// Turns clients' messages into events for the policy, and its decisions into messages.
#include "daemon/broker.hpp"

#include "base/log.hpp"
#include "base/log_rarely.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr std::size_t most_places = 65;  // devices and the host
constexpr const char* no_group = "none";

std::string as_text(Size bytes) {
  return print_size(bytes);
}

}  // namespace

std::optional<PlaceId> Broker::place_of(const PlaceUuid& uuid) const {
  if (uuid == PlaceUuid{}) return host_place;
  for (const observe::NodeDevice& device : settings_.devices) {
    if (device.uuid == uuid) return device.index + 1;
  }
  return {};
}

PlaceUuid Broker::uuid_of(PlaceId place) const {
  for (const observe::NodeDevice& device : settings_.devices) {
    if (device.index + 1 == place) return device.uuid;
  }
  return {};
}

std::string Broker::name_of(ClientId client) const {
  const auto found = parties_.find(client);
  if (found == parties_.end() || !found->second.wishes) return "";
  if (!found->second.wishes->name.empty()) return found->second.wishes->name;
  return std::to_string(found->second.peer.process);
}

std::optional<std::string> Broker::configure(const ServiceConfig& config, Microseconds now) {
  if (!began_) began_ = now;
  std::map<PlaceId, Size> capacity;
  capacity[host_place] = config.host.value_or(observe::host_capacity());
  for (const observe::NodeDevice& device : settings_.devices) {
    Size bytes = device.memory;
    for (const std::string& name :
         {std::to_string(device.index), observe::print_uuid(device.uuid)}) {
      const auto named = config.capacity.find(name);
      if (named != config.capacity.end()) bytes = named->second;
    }
    if (device.memory != 0) bytes = std::min(bytes, device.memory);
    capacity[device.index + 1] = bytes;
  }
  for (const auto& [name, bytes] : config.capacity) {
    const bool is_there = std::any_of(settings_.devices.begin(), settings_.devices.end(),
                                      [&named = name](const observe::NodeDevice& one) {
                                        return named == std::to_string(one.index) ||
                                               named == observe::print_uuid(one.uuid);
                                      });
    if (!is_there)
      return "[capacity]: " + name + " is neither host nor the number or UUID of a device";
  }
  for (const auto& [place, bytes] : capacity) {
    if (place == host_place || config.guaranteed() <= bytes) continue;
    return "guarantees add up to " + as_text(config.guaranteed()) + ", and device " +
           std::to_string(place - 1) + " has " + as_text(bytes);
  }
  ServiceConfig before = std::exchange(config_, config);
  // First lowers guarantees, then changes capacities, then raises guarantees.
  std::map<ConnectionId, ClientTerms> lowered;
  std::map<PlaceId, Size> guaranteed;
  for (const auto& [id, party] : parties_) {
    if (!party.is_client) continue;
    ClientTerms terms = entitle(party);
    for (auto& [place, share] : terms.shares) {
      share.guarantee =
          std::min(share.guarantee, policy_.books().find_client(id)->guarantee(place));
      guaranteed[place] += share.guarantee;
    }
    lowered[id] = std::move(terms);
  }
  for (const auto& [place, bytes] : capacity) {
    if (guaranteed[place] <= bytes) continue;
    config_ = std::move(before);
    return "connected clients are guaranteed " + as_text(guaranteed[place]) + ", more than " +
           as_text(bytes);
  }
  for (const auto& [id, terms] : lowered) tell(TermsChanged{id, terms}, now);
  for (const auto& [place, bytes] : capacity) {
    const PlaceKind kind = place == host_place ? PlaceKind::Host : PlaceKind::Device;
    const Size most_of_a_user =
        place == host_place ? config.host_per_user.value_or(bytes / 4 * 3) : unlimited;
    tell(PlaceConfigured{place, kind, bytes, most_of_a_user}, now);
  }
  renew_all_terms(now);
  time_.configure(config_.time, now);
  renew_time_terms(now);
  return {};
}

const ClientRule* Broker::rule_of(const Party& party) const {
  const auto rule = std::find_if(
      config_.rules.begin(), config_.rules.end(),
      [&](const ClientRule& one) { return fits(one, party.peer, party.wishes->name); });
  return rule == config_.rules.end() ? nullptr : &*rule;
}

void Broker::connected(ConnectionId id, Peer peer, Microseconds) {
  parties_[id].peer = std::move(peer);
}

void Broker::gone(ConnectionId id, Microseconds now) {
  const auto found = parties_.find(id);
  if (found == parties_.end()) return;
  const bool was_client = found->second.is_client;
  if (was_client) tell(ClientLeft{id}, now);
  time_.left(id, now);
  share_keys_.forget(id);
  if (deep_pauses_ != nullptr) deep_pauses_->gone(id);
  parties_.erase(id);
  // Others may have lacked the room that it leaves for a guarantee.
  const bool some_lack_one = std::any_of(parties_.begin(), parties_.end(), [](const auto& one) {
    return !one.second.without_guarantee.empty();
  });
  if (was_client && some_lack_one) renew_all_terms(now);
}

bool Broker::said(ConnectionId id, std::span<const std::byte> packet, Microseconds now) {
  const auto found = parties_.find(id);
  if (found == parties_.end()) return false;
  const auto message = decode(packet);
  if (message.ok()) {
    return std::visit([&](const auto& one) { return on(id, found->second, one, now); }, *message);
  }
  if (message.error().kind != ErrorKind::NotAvailable) return false;
  const auto observed = decode_observed(packet);
  if (observed.ok()) return observe(id, found->second, *observed, now);
  // Ignore kinds of a newer version once a version has been agreed on.
  return observed.error().kind == ErrorKind::NotAvailable && found->second.is_client;
}

bool Broker::on(ConnectionId id, Party& party, const Greeting& said, Microseconds now) {
  if (party.wishes) return false;
  if (!common_version(said)) {
    say(id, Rejected{.why = Rejection::Version, .text = "no common version"});
    end_(id);
    return true;
  }
  if (said.places > most_places) return false;
  party.wishes = Wishes{.name = said.name,
                        .group = said.group == no_group ? ""
                                 : said.group.empty()   ? party.peer.group
                                                        : said.group,
                        .weight = std::clamp<std::uint32_t>(said.weight, 1, 10'000),
                        .priority = std::clamp(said.priority, -100, 100),
                        .places = {}};
  party.waits_for_nobody = said.group == no_group;
  party.places_to_come = said.places;
  return party.places_to_come != 0 || accept(id, party, now);
}

bool Broker::on(ConnectionId id, Party& party, const HeldAlready& said, Microseconds now) {
  if (!party.wishes) return false;
  const auto place = place_of(said.place);
  if (!party.is_client) {
    if (party.places_to_come == 0) return false;
    if (place) party.wishes->places[*place] = said;
    return --party.places_to_come != 0 || accept(id, party, now);
  }
  if (!place) return true;  // its requests there will be refused
  if (*place != host_place) time_.uses(id, *place, now);
  party.wishes->places[*place] = said;
  party.wishes->places[*place].bytes = 0;  // it requests leases for what it holds
  renew_terms(id, party, now);
  say_terms(id, *place);
  return true;
}

void Broker::say_terms(ConnectionId to, PlaceId place) const {
  const NodeClient* const client = policy_.books().find_client(to);
  if (client == nullptr) return;
  const MemoryShare share = client->terms.share_at(place);
  say(to, PlaceTerms{uuid_of(place), share.guarantee, share.limit});
}

bool Broker::on(ConnectionId id, Party& party, const LeaseAsk& said, Microseconds now) {
  if (!party.is_client) return false;
  const auto place = place_of(said.place);
  if (!place) {
    say(id, LeaseRefusal{.request = said.request, .why = RefusalReason::UnknownPlace});
    return true;
  }
  const bool in_parts = party.takes_parts == said.request;
  tell(LeaseRequested{id, said.request, *place, said.bytes, said.at_once, in_parts}, now);
  return true;
}

bool Broker::on(ConnectionId /*id*/, Party& party, const TakesParts& said, Microseconds /*now*/) {
  party.takes_parts = said.request;
  return party.is_client;
}

bool Broker::on(ConnectionId id, Party& party, const LeaseCancel& said, Microseconds now) {
  if (!party.is_client) return false;
  tell(RequestCancelled{id, said.request}, now);
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const LeaseReturn& said, Microseconds now) {
  if (!party.is_client) return false;
  const auto place = place_of(said.place);
  if (!place) return true;
  for (Move& move : moves_) {
    const bool goes_on = move.is_open && move.state.step == ReclaimStep::Pause;
    if (!goes_on || move.client != id || move.state.place != said.place) continue;
    move.state.returned += said.bytes;
    break;
  }
  tell(LeaseReturned{id, *place, said.bytes}, now);
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const UseReport& said, Microseconds now) {
  if (!party.is_client) return false;
  if (const auto place = place_of(said.place)) {
    tell(UseReported{id, *place, said.cache, said.cold, said.is_idle}, now);
  }
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const ReclaimAnswer& said, Microseconds now) {
  if (!party.is_client) return false;
  const auto place = place_of(said.place);
  if (!place) return false;
  for (Move& move : moves_) {
    if (move.is_open && move.client == id && move.revision == said.revision) {
      move.state.returned += said.returned;
    }
  }
  tell(ReclaimAnswered{id, said.revision, *place, said.outcome, said.returned}, now);
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const OutlastedTurn&, Microseconds now) {
  if (!party.is_client) return false;
  tell(WorkOutlastedTurn{id}, now);
  return true;
}

void Broker::carry_out_all(const Decisions& decisions, Microseconds now) {
  regroup_time(decisions, now);
  pause_groups_together(decisions);
  for (const Decision& decision : decisions) carry_out(decision, now);
}

Decisions Broker::tell(const NodeEvent& event, Microseconds now) {
  Decisions decisions = policy_.handle(event, now);
  history_.note(event, decisions, now);
  carry_out_all(decisions, now);
  return decisions;
}

void Broker::carry_out(const Decision& decision, Microseconds now) {
  const auto refusal_of = [&](const LeaseRefused& refused) {
    LeaseRefusal said{.request = refused.request,
                      .why = refused.why,
                      .free = refused.free,
                      .foreign = refused.foreign};
    for (const Holder& holder : refused.holders) {
      const auto party = parties_.find(holder.client);
      const pid_t process = party == parties_.end() ? 0 : party->second.peer.process;
      said.holders.push_back({static_cast<std::uint32_t>(process), holder.leased, holder.guarantee,
                              name_of(holder.client)});
    }
    return said;
  };
  if (const auto* granted = std::get_if<LeaseGranted>(&decision)) {
    say(granted->client, LeaseGrant{granted->request});
  } else if (const auto* part = std::get_if<PartGranted>(&decision)) {
    say(part->client, LeasePart{part->request, part->bytes});
  } else if (const auto* refused = std::get_if<LeaseRefused>(&decision)) {
    say(refused->client, refusal_of(*refused));
  } else if (const auto* asked = std::get_if<ReclaimRequested>(&decision)) {
    note_move(*asked, now);
    if (asked->step == ReclaimStep::Pause) {
      say(asked->client, WorkDeadline{asked->revision, asked->work_within});
    }
    say(asked->client,
        ReclaimDemand{asked->revision, uuid_of(asked->place), asked->step, asked->bytes,
                      asked->deadline > now ? asked->deadline - now : 0});
  } else if (const auto* ended = std::get_if<ReclaimEnded>(&decision)) {
    end_move(*ended, now);
    group_pauses_.ended(ended->client, ended->revision, ended->how);
  } else if (const auto* turn = std::get_if<TurnStarted>(&decision)) {
    say(turn->client, TurnNotice{true, turn->quantum});
    time_.has_memory_turn(turn->client, true, now);
  } else if (const auto* over = std::get_if<TurnEnded>(&decision)) {
    say(over->client, TurnNotice{false, 0});
    time_.has_memory_turn(over->client, false, now);
  } else if (const auto* leaving = std::get_if<LeaveRequested>(&decision)) {
    begin_deep_pause(leaving->client, DeepPauseWay::Off);
  } else if (const auto* returning = std::get_if<ReturnRequested>(&decision)) {
    begin_deep_pause(returning->client, DeepPauseWay::Back);
  } else if (const auto* away = std::get_if<ReturnRefused>(&decision)) {
    log_refusal(*away);
  } else if (const auto* off = std::get_if<TurnsSuspended>(&decision)) {
    CUVMM_LOG(Warning,
              "work of %s outlasted its turn: in flight for %.0f ms, at most %.0f ms are allowed; "
              "no turns on %s for %.0f s",
              name_of(off->because_of).c_str(), static_cast<double>(off->in_flight) / 1e3,
              static_cast<double>(off->longest) / 1e3, place_name(off->place).c_str(),
              static_cast<double>(off->until - now) / 1e6);
    for (const auto& [id, party] : parties_) {
      if (party.is_client) say(id, TurnsOff{uuid_of(off->place), off->until - now});
    }
  }
}

}  // namespace cuvmm::daemon
