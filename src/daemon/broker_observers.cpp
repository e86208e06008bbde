// SPDX-License-Identifier: Apache-2.0
// Shows the state to observers, and lets them change terms.
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
  const auto answer = [&](const ObserverMessage& words) { send_(id, encode_observed(words)); };
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
  const auto show = [&](const ObserverMessage& words) { send_(id, encode_observed(words)); };
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
    show_time(id, client);
    show_pause(id, client);
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
    if (move.is_open) state.took = state.ago;
    show(state);
  }
  show(StateEnd{.up_for = now - began_.value_or(now)});
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

const char* Broker::why_may_not_change(const Party& by, std::uint16_t version) const {
  if (version != observer_protocol) return "the service speaks another version";
  if (by.peer.user != settings_.user && by.peer.user != 0) {
    return "only root and the service's own user may";
  }
  return nullptr;
}

// Why the client's new terms contradict each other, at a device; empty if they do not.
std::string Broker::contradiction_in(const ClientTerms& before, const ClientTerms& now,
                                     const TermsAsk& asked) {
  for (const auto& [place, share] : now.shares) {
    if (place == host_place) continue;
    if (asked.sets_guarantee && asked.guarantee > share.limit) {
      return "the guarantee of " + print_size(asked.guarantee) + " exceeds the limit of " +
             print_size(share.limit);
    }
    const Size guarantee = before.share_at(place).guarantee;
    if (asked.sets_limit && !asked.sets_guarantee && share.limit < guarantee) {
      return "the limit of " + print_size(share.limit) + " is below the guarantee of " +
             print_size(guarantee);
    }
  }
  return {};
}

ObserverAnswer Broker::change_terms(const Party& by, const TermsAsk& asked, Microseconds now) {
  if (const char* const why_not = why_may_not_change(by, asked.version))
    return {.why_not = why_not};
  ObserverAnswer answer;
  for (auto& [id, party] : parties_) {
    if (!party.is_client || name_of(id) != asked.name) continue;
    const std::optional<TermsAsk> before = party.set_by_hand;
    const ClientTerms terms_before = entitle(party);
    TermsAsk merged = before.value_or(TermsAsk{});
    if (asked.sets_guarantee) merged.guarantee = asked.guarantee, merged.sets_guarantee = true;
    if (asked.sets_limit) merged.limit = asked.limit, merged.sets_limit = true;
    if (asked.sets_weight) merged.weight = asked.weight, merged.sets_weight = true;
    if (asked.sets_priority) merged.priority = asked.priority, merged.sets_priority = true;
    party.set_by_hand = merged;
    const auto without_before = party.without_guarantee;
    if (asked.sets_guarantee) party.without_guarantee.clear();
    answer.why_not = contradiction_in(terms_before, entitle(party), asked);
    if (!answer.why_not.empty()) {
      party.set_by_hand = before;
      party.without_guarantee = without_before;
      return answer;
    }
    for (const Decision& decision : tell(TermsChanged{id, entitle(party)}, now)) {
      const auto* const refused = std::get_if<TermsRefused>(&decision);
      if (refused == nullptr) continue;
      party.set_by_hand = before;
      party.without_guarantee = without_before;
      answer.why_not = "guarantees add up to " + print_size(refused->guaranteed) + " of " +
                       print_size(refused->capacity);
      return answer;
    }
    for (const auto& [place, wish] : party.wishes->places) say_terms(id, place);
    ++answer.changed;
  }
  if (answer.changed == 0) answer.why_not = "there is no client of that name";
  return answer;
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
    CUVMM_LOG(Info, "%s gave %s of %s to %s in %.1f ms (%s)", move.state.from.c_str(),
              print_size(move.state.returned).c_str(), print_size(move.state.asked).c_str(),
              move.state.for_whom.empty() ? "nobody" : move.state.for_whom.c_str(),
              static_cast<double>(move.state.took) / 1000, words_for(move.state.step));
  }
}

}  // namespace cuvmm::daemon
