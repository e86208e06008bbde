// SPDX-License-Identifier: Apache-2.0
// Gives clients their terms: when they come, after a reload, and by `cuvmm set`.
#include "base/log.hpp"
#include "daemon/broker.hpp"
#include "share/process.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

void merge(const TermsAsk& asked, TermsAsk& into) {
  if (asked.sets_guarantee) into.guarantee = asked.guarantee, into.sets_guarantee = true;
  if (asked.sets_limit) into.limit = asked.limit, into.sets_limit = true;
  if (asked.sets_weight) into.weight = asked.weight, into.sets_weight = true;
  if (asked.sets_priority) into.priority = asked.priority, into.sets_priority = true;
}

std::optional<TermsRefused> refusal_in(const Decisions& decisions) {
  for (const Decision& decision : decisions) {
    if (const auto* const refused = std::get_if<TermsRefused>(&decision)) return *refused;
  }
  return {};
}

std::string sum_of(const TermsRefused& refused) {
  return "guarantees would add up to " + print_size(refused.guaranteed) + "; there is " +
         print_size(refused.capacity);
}

}  // namespace

ClientTerms Broker::entitle(const Party& party) const {
  const Wishes& wishes = *party.wishes;
  const bool is_trusted = settings_.serves == Serves::OneUser || party.peer.user == 0;
  ClientTerms terms{.weight = is_trusted ? wishes.weight : 1,
                    .priority = is_trusted ? wishes.priority : std::min(wishes.priority, 0),
                    .group = wishes.group};
  if (!is_trusted) terms.untrusted_user = party.peer.user;
  // Groups of different users are different groups.
  if (!terms.group.empty()) terms.group = std::to_string(party.peer.user) + ":" + terms.group;
  const ClientRule* const rule = rule_of(party);
  const bool is_ruled = rule != nullptr;
  if (is_ruled) {
    terms.weight = rule->weight.value_or(terms.weight);
    terms.priority = rule->priority.value_or(terms.priority);
  }
  const DeepPauseRule& deep_pause =
      is_ruled && rule->deep_pause ? *rule->deep_pause : config_.deep_pause;
  terms.deep_pause_after = deep_pause.after;
  const std::optional<TermsAsk>& by_hand = party.by_hand.terms;
  for (const auto& [place, wish] : wishes.places) {
    MemoryShare share{.guarantee = is_trusted && !is_ruled ? wish.guarantee : 0,
                      .limit = wish.limit};
    if (is_ruled && place != host_place) {
      share.guarantee = rule->guarantee;
      share.limit = std::min(share.limit, rule->limit.value_or(node::unlimited));
    }
    if (by_hand && place != host_place) {
      if (by_hand->sets_guarantee) share.guarantee = by_hand->guarantee;
      if (by_hand->sets_limit) share.limit = by_hand->limit;
    }
    if (party.without_guarantee.count(place) != 0) share.guarantee = 0;
    share.guarantee = std::min(share.guarantee, share.limit);
    terms.shares[place] = share;
  }
  if (by_hand && by_hand->sets_weight) terms.weight = by_hand->weight;
  if (by_hand && by_hand->sets_priority) terms.priority = by_hand->priority;
  return terms;
}

bool Broker::accept(ConnectionId id, Party& party, Microseconds now) {
  std::map<PlaceId, Size> held;
  for (const auto& [place, wish] : party.wishes->places) held[place] = wish.bytes;
  recall_hand_set(party);
  ClientTerms terms = entitle(party);
  while (const auto refused = refusal_in(tell(ClientCame{id, terms, held}, now))) {
    // A client can take back a guarantee that it has asked for, but not one of a rule or of
    // `cuvmm set`. Refusing the client would leave it without the limit too.
    const bool is_its_own = rule_of(party) == nullptr && !party.by_hand.terms;
    if (is_its_own || !drop_guarantee(id, party, *refused)) {
      say(id, Rejected{.why = Rejection::GuaranteesDoNotFit, .text = sum_of(*refused)});
      end_(id);
      return true;
    }
    terms = entitle(party);
  }
  party.is_client = true;
  say(id, Accepted{.weight = terms.weight, .priority = terms.priority});
  for (const auto& [place, wish] : party.wishes->places) say_terms(id, place);
  return true;
}

void Broker::renew_terms(ConnectionId id, Party& party, Microseconds now) {
  while (const auto refused = refusal_in(tell(TermsChanged{id, entitle(party)}, now))) {
    if (!drop_guarantee(id, party, *refused)) return;
  }
}

bool Broker::drop_guarantee(ConnectionId id, Party& party, const TermsRefused& refused) {
  if (!party.without_guarantee.insert(refused.place).second) return false;
  CUVMM_LOG(Warning, "client %s gets no guarantee on %s: %s", name_of(id).c_str(),
            place_name(refused.place).c_str(), sum_of(refused).c_str());
  return true;
}

void Broker::renew_all_terms(Microseconds now) {
  TermsOfClients changes;
  for (auto& [id, party] : parties_) {
    party.without_guarantee.clear();
    if (party.is_client) changes[id] = entitle(party);
  }
  for (const auto& [id, terms] : change_together(std::move(changes), now)) {
    renew_terms(id, parties_[id], now);
  }
  for (const auto& [id, party] : parties_) {
    if (!party.is_client) continue;
    for (const auto& [place, wish] : party.wishes->places) say_terms(id, place);
  }
}

// A guarantee that grows may fit only once another has shrunk, so repeats what was refused as long
// as that helps.
Broker::TermsOfClients Broker::change_together(TermsOfClients changes, Microseconds now) {
  for (std::size_t before = 0; before != changes.size();) {
    before = changes.size();
    std::erase_if(changes, [&](const auto& change) {
      return !refusal_in(tell(TermsChanged{change.first, change.second}, now));
    });
  }
  return changes;
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

// Why the guarantees do not fit together after these changes; empty if they do. At the host they do
// not change.
std::string Broker::excess_with(const TermsOfClients& changes) const {
  for (const auto& [place, facts] : policy_.books().places()) {
    if (place == host_place) continue;
    Size sum = 0;
    for (const auto& [id, client] : policy_.books().clients()) {
      const auto change = changes.find(id);
      const ClientTerms& terms = change == changes.end() ? client.terms : change->second;
      sum = saturating_sum(sum, terms.share_at(place).guarantee);
    }
    if (sum > facts.capacity) return sum_of({.guaranteed = sum, .capacity = facts.capacity});
  }
  return {};
}

// Checks all clients of the name before it changes any.
ObserverAnswer Broker::change_terms(const Party& by, const TermsAsk& asked, Microseconds now) {
  if (const char* const why_not = why_may_not_change(by, asked.version))
    return {.why_not = why_not};
  struct Before {
    std::optional<TermsAsk> by_hand;
    std::set<PlaceId> without_guarantee;
  };
  std::map<ConnectionId, Before> before;
  TermsOfClients changes;
  std::string why_not;
  for (auto& [id, party] : parties_) {
    if (!party.is_client || name_of(id) != asked.name) continue;
    before[id] = {party.by_hand.terms, party.without_guarantee};
    const ClientTerms terms_before = entitle(party);
    if (!party.by_hand.terms) party.by_hand.terms.emplace();
    merge(asked, *party.by_hand.terms);
    if (asked.sets_guarantee) party.without_guarantee.clear();
    changes[id] = entitle(party);
    if (why_not.empty()) why_not = contradiction_in(terms_before, changes[id], asked);
  }
  if (before.empty()) why_not = "there is no client of that name";
  if (why_not.empty()) why_not = excess_with(changes);
  if (!why_not.empty()) {
    for (const auto& [id, old] : before) {
      parties_[id].by_hand.terms = old.by_hand;
      parties_[id].without_guarantee = old.without_guarantee;
    }
    return {.why_not = why_not};
  }
  change_together(std::move(changes), now);
  for (const auto& [id, old] : before) {
    const Party& party = parties_[id];
    remember_hand_set(party);
    for (const auto& [place, wish] : party.wishes->places) say_terms(id, place);
  }
  return {.changed = static_cast<std::uint32_t>(before.size())};
}

void Broker::remember_hand_set(const Party& party) {
  const auto has_ended = [](const auto& one) {
    const share::ProcessState state = share::state_of(one.first.first);
    return !state.runs || state.start_ticks != one.second.start_ticks;
  };
  std::erase_if(hand_set_, has_ended);
  const pid_t process = party.peer.process;
  if (process == 0) return;
  hand_set_[{process, party.wishes->name}] = {share::state_of(process).start_ticks, party.by_hand};
}

void Broker::recall_hand_set(Party& party) const {
  const pid_t process = party.peer.process;
  const auto found = hand_set_.find({process, party.wishes->name});
  if (found == hand_set_.end()) return;
  const bool is_same = share::state_of(process).start_ticks == found->second.start_ticks;
  if (is_same) party.by_hand = found->second.by_hand;
}

}  // namespace cuvmm::daemon
