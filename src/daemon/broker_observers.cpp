// SPDX-License-Identifier: Apache-2.0
// Shows the state to observers.
#include "base/log.hpp"
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr std::size_t most_moves = 64;

const char* words_for(ReclaimStep step) {
  switch (step) {
    case ReclaimStep::Cache:
      return "cache";
    case ReclaimStep::Cold:
      return "cold memory";
    case ReclaimStep::Pause:
      return "pause";
  }
  return "";
}

}  // namespace

bool Broker::observe(ConnectionId id, const Party& party, const ObserverMessage& said,
                     Microseconds now) {
  const auto answer = [&](const ObserverMessage& words) { send_(id, {encode_observed(words)}); };
  // A user's service is visible only to that user and root; the machine's service, to all users.
  const bool may_look = settings_.serves == Serves::AllUsers || party.peer.user == settings_.user ||
                        party.peer.user == 0;
  if (const auto* const ask = std::get_if<StateAsk>(&said)) {
    if (ask->version != observer_protocol) {
      answer(ObserverAnswer{.why_not = "the service speaks another version"});
    } else if (!may_look) {
      answer(ObserverAnswer{.why_not = "this service is another user's"});
    } else {
      show_state(id, now);
    }
    return true;
  }
  if (const auto* const ask = std::get_if<TermsAsk>(&said)) {
    answer(change_terms(party, *ask, now));
    renew_time_terms(now);
    return true;
  }
  if (const auto* const ask = std::get_if<TimeTermsAsk>(&said)) {
    answer(change_cap(party, *ask, now));
    return true;
  }
  return false;
}

void Broker::show_state(ConnectionId id, Microseconds now) const {
  std::vector<Packet> answer;
  const auto show = [&](const ObserverMessage& words) { answer.push_back(encode_observed(words)); };
  for (const auto& [place, facts] : policy_.books().places()) {
    show(node::PlaceState{.place = uuid_of(place),
                          .kind = facts.kind,
                          .index = place == host_place ? 0 : place - 1,
                          .capacity = facts.capacity,
                          .leased = facts.leased,
                          .foreign = facts.foreign});
  }
  for (const auto& [client, facts] : policy_.books().clients()) {
    const auto party = parties_.find(client);
    if (party == parties_.end() || !party->second.wishes) continue;
    const Peer& peer = party->second.peer;
    show(node::ClientState{.client = client,
                           .process = static_cast<std::uint32_t>(peer.process),
                           .user = peer.user,
                           .name = name_of(client),
                           .group = group_name_of(client),
                           .weight = facts.terms.weight,
                           .priority = facts.terms.priority,
                           .is_idle = facts.is_idle,
                           .has_turn = policy_.turns().has_turn(facts.group),
                           .is_stalled = facts.is_stalled});
    if (const auto time = time_of(client)) show(*time);
    if (const auto pause = pause_of(client)) show(*pause);
    for (const auto& [place, wish] : party->second.wishes->places) {
      const ClientHolding* const holding = facts.find(place);
      const MemoryShare share = facts.terms.share_at(place);
      show(node::HoldingState{.client = client,
                              .place = uuid_of(place),
                              .leased = facts.leased(place),
                              .guarantee = share.guarantee,
                              .limit = share.limit,
                              .cache = holding == nullptr ? 0 : holding->cache,
                              .waited_for = policy_.waited_for(client, place),
                              .waits_for = awaited_by(client, place)});
    }
  }
  for (const Move& move : moves_) {
    node::MoveState state = move.state;
    state.ago = now - move.began;
    state.is_open = move.is_open;
    if (move.is_open) state.took = state.ago;
    show(state);
  }
  show(StateEnd{.up_for = now - began_.value_or(now)});
  send_(id, std::move(answer));
}

// The names of the clients that this one waits for: those asked for memory of the place, or else
// those with a turn. If its contexts have no room to return, all that hold or are guaranteed some.
std::string Broker::awaited_by(ClientId client, PlaceId place) const {
  if (policy_.waited_for(client, place) == 0) return "";
  std::string names;
  const auto add = [&](ClientId other) {
    if (other == client) return;
    if (!names.empty()) names += ", ";
    names += name_of(other);
  };
  const bool lacks_room = policy_.books().find_client(client)->deep.lacks_room_at == place;
  if (lacks_room) {
    for (const ClientId other : claimants(place, client)) add(other);
    return names.empty() ? "foreign memory" : names;
  }
  for (const OpenReclaim& open : policy_.open_reclaims().all()) {
    if (open.place == place) add(open.client);
  }
  if (!names.empty()) return names;
  for (const auto& [other, facts] : policy_.books().clients()) {
    if (policy_.turns().has_turn(facts.group)) add(other);
  }
  return names;
}

void Broker::note_move(const ReclaimRequested& asked, Microseconds now) {
  Move move{.client = asked.client, .revision = asked.revision, .began = now};
  move.state.place = uuid_of(asked.place);
  move.state.from = name_of(asked.client);
  if (asked.asker) move.state.for_whom = name_of(*asked.asker);
  move.state.step = asked.step;
  move.state.asked = asked.bytes;
  moves_.push_back(std::move(move));
  if (moves_.size() > most_moves) moves_.pop_front();
}

void Broker::end_move(const ReclaimEnded& ended, Microseconds now) {
  for (Move& move : moves_) {
    if (!move.is_open || move.client != ended.client || move.revision != ended.revision) continue;
    move.is_open = false;
    move.state.how = ended.how;
    move.state.took = now - move.began;
    std::string how = words_for(move.state.step);
    if (ended.how != ReclaimEnd::Applied) how += std::string{", "} + observe::name_of(ended.how);
    CUVMM_LOG(
        Info, "%s gave %s (%s asked for) to %s in %.1f ms (%s)", move.state.from.c_str(),
        print_size(move.state.returned).c_str(), print_size(move.state.asked).c_str(),
        move.state.for_whom.empty() ? "a lowered limit or capacity" : move.state.for_whom.c_str(),
        static_cast<double>(move.state.took) / 1000, how.c_str());
  }
}

}  // namespace cuvmm::daemon
