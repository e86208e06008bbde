// SPDX-License-Identifier: Apache-2.0
// The broker's part in sharing device time.
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

void Broker::time_passed(Microseconds now) {
  tell(TimePassed{}, now);
  time_.time_passed(now);
}

std::optional<Microseconds> Broker::next_wake() const {
  const auto of_memory = policy_.next_wake();
  const auto of_time = time_.next_wake();
  if (!of_memory || !of_time) return of_memory ? of_memory : of_time;
  return std::min(*of_memory, *of_time);
}

// Any client may ask for a cap: it only lowers what the client gets.
TimeTerms Broker::time_terms(ConnectionId id, const Party& party) const {
  const NodeClient* const client = policy_.books().find_client(id);
  if (client == nullptr) return {};
  TimeTerms terms{.weight = client->terms.weight,
                  .priority = client->terms.priority,
                  .cap = party.cap_wish.value_or(100),
                  .group = client->group};
  for (const ClientRule& rule : config_.rules) {
    if (!fits(rule, party.peer, party.wishes->name)) continue;
    terms.cap = std::min(terms.cap, rule.cap.value_or(100));
    break;
  }
  terms.cap = std::clamp(party.by_hand.cap.value_or(terms.cap), 1U, 100U);
  return terms;
}

void Broker::renew_time_terms(Microseconds now) {
  for (const auto& [id, party] : parties_) {
    if (time_.knows(id)) time_.terms_changed(id, time_terms(id, party), now);
  }
}

bool Broker::on(ConnectionId id, Party& party, const TimeWish& said, Microseconds now) {
  if (!party.is_client || time_.knows(id)) return false;
  party.cap_wish = std::clamp(said.cap, 1U, 100U);
  if (!send_with_) return true;
  const auto board = time_.came(id, party.peer.process, time_terms(id, party), now);
  if (!board) return true;
  send_with_(id, encode(TimeBoard{}), *board);
  for (const auto& [place, wish] : party.wishes->places) {
    if (place != host_place) time_.uses(id, place, now);
  }
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const TimeNews&, Microseconds now) {
  if (!party.is_client) return false;
  time_.news(id, now);
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const YieldsToForeground&, Microseconds) {
  if (!party.is_client) return false;
  time_.yields(id);
  return true;
}

ObserverAnswer Broker::change_cap(const Party& by, const TimeTermsAsk& asked, Microseconds now) {
  if (const char* const why_not = why_may_not_change(by, asked.version))
    return {.why_not = why_not};
  ObserverAnswer answer;
  for (auto& [id, party] : parties_) {
    if (!party.is_client || name_of(id) != asked.name) continue;
    party.by_hand.cap = std::clamp(asked.cap, 1U, 100U);
    remember_hand_set(party);
    ++answer.changed;
  }
  renew_time_terms(now);
  if (answer.changed == 0) answer.why_not = "there is no client of that name";
  return answer;
}

std::optional<TimeState> Broker::time_of(ClientId client) const {
  if (!time_.knows(client)) return {};
  const TimeUse use = time_.use_of(client);
  return TimeState{.client = client,
                   .cap = time_.cap_of(client),
                   .held = use.held,
                   .waited = use.waited,
                   .competes = time_.competes(client)};
}

}  // namespace cuvmm::daemon
