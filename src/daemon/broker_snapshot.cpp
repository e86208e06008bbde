// SPDX-License-Identifier: Apache-2.0
// The state as metrics and the live view show it.
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

observe::ClientCondition condition_of(const NodeClient& client, bool has_turn, bool waits) {
  using enum observe::ClientCondition;
  if (client.is_stalled) return Stalled;
  if (has_turn) return Turn;
  if (waits) return Waiting;
  return client.is_idle ? Idle : Running;
}

}  // namespace

std::string Broker::place_name(PlaceId place) const {
  return place == host_place ? observe::host_name : observe::print_uuid(uuid_of(place));
}

observe::Snapshot Broker::snapshot(Microseconds now) const {
  observe::Snapshot all;
  all.has_service = true;
  all.up_us = now - began_.value_or(now);
  all.events = history_.events(now);
  for (const auto& [place, facts] : policy_.books().places()) {
    all.devices.push_back({.uuid = place_name(place),
                           .index = place == host_place ? 0 : static_cast<int>(place - 1),
                           .capacity = facts.capacity,
                           .leased = facts.leased,
                           .foreign = facts.foreign});
  }
  for (const auto& [id, facts] : policy_.books().clients()) {
    const auto party = parties_.find(id);
    if (party == parties_.end() || !party->second.wishes) continue;
    observe::ClientSample& client = all.clients.emplace_back();
    client.label = history_.label_of(id);
    client.process = party->second.peer.process;
    client.user = party->second.peer.user;
    client.group = group_name_of(id);
    client.weight = facts.terms.weight;
    client.priority = facts.terms.priority;
    client.tally = history_.tally_of(id, now);
    if (time_.knows(id)) {
      const TimeUse use = time_.use_of(id);
      client.time = observe::TimeSample{
          .cap = time_.cap_of(id), .held_us = use.held, .waited_us = use.waited};
    }
    bool waits = false;
    for (const auto& [place, wish] : party->second.wishes->places) {
      const MemoryShare share = facts.terms.share_at(place);
      const Size waited_for = policy_.waited_for(id, place);
      waits = waits || waited_for != 0;
      client.at(place_name(place)).lease =
          observe::LeaseSample{.leased = facts.leased(place),
                               .guarantee = share.guarantee,
                               .limit = share.limit,
                               .waited_for = waited_for,
                               .waits_us = history_.waits(id, place, now),
                               .waits_for = awaited_by(id, place)};
    }
    client.is_off_devices = is_off_devices(facts.deep.stay);
    client.condition = condition_of(facts, policy_.turns().has_turn(facts.group), waits);
  }
  return all;
}

}  // namespace cuvmm::daemon
