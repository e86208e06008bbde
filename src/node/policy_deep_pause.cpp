// SPDX-License-Identifier: Apache-2.0
// Paused clients that leave their devices once nothing has waited for them for a while, and return
// as soon as something does.
#include "node/policy.hpp"

namespace cuvmm::node {

void NodePolicy::on(const PresenceReported& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr) return;
  DeepPauseFacts& deep = client->deep;
  if (event.is_paused && !deep.is_paused) deep.stays_on = false;
  deep.can_leave = true;
  deep.is_paused = event.is_paused;
  deep.has_held_calls = event.has_held_calls;
  deep.says_off = event.is_off_devices;
  // Reserve memory for these sizes only if the client's terms let it leave its devices. For all
  // others, the helper finds out whether there is room.
  deep.says_contexts = client->terms.deep_pause_after ? event.contexts : decltype(event.contexts){};
  if (deep.has_held_calls) client->is_idle = false;
  const bool has_helper = deep.stay == DeviceStay::Leaving || deep.stay == DeviceStay::Returning;
  if (!has_helper) follow_last_report(event.client);
}

// A client reports before it answers a helper, so its last report covers everything that the helper
// has done, and anything that a command has done since.
void NodePolicy::follow_last_report(ClientId id) {
  DeepPauseFacts& deep = books_.find_client(id)->deep;
  if (!deep.says_off) {
    if (deep.stay == DeviceStay::Gathering) give_up_return(id);
    books_.end_coming_back(id, NodeBooks::Arrived::Yes);
    deep.stay = DeviceStay::On;
    deep.must_return = false;
    deep.lacks_room_at.reset();
  } else if (deep.stay == DeviceStay::On) {  // an earlier service may have taken it off
    deep.stay = DeviceStay::Off;
    deep.contexts = deep.says_contexts;
  }
}

void NodePolicy::on(const LeaveEnded& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr || client->deep.stay != DeviceStay::Leaving) return;
  DeepPauseFacts& deep = client->deep;
  deep.stays_on = event.how != LeaveEnded::How::Off;
  deep.must_return = event.how == LeaveEnded::How::Halfway;
  deep.no_return_before = now_;
  deep.stay = event.how == LeaveEnded::How::On ? DeviceStay::On : DeviceStay::Off;
  deep.contexts = event.contexts;
  if (!deep.must_return) follow_last_report(event.client);
}

void NodePolicy::on(const ReturnEnded& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr || client->deep.stay != DeviceStay::Returning) return;
  DeepPauseFacts& deep = client->deep;
  switch (event.how) {
    case ReturnEnded::How::Back:
      books_.end_coming_back(event.client, NodeBooks::Arrived::Yes);
      deep.stay = DeviceStay::On;
      deep.stays_on = true;
      deep.must_return = false;
      deep.return_rest = 0;
      // Otherwise a client that keeps reporting that it has left would get helper after helper.
      deep.no_return_before = now_ + times_.shortest_return_rest;
      deep.contexts.clear();
      break;
    case ReturnEnded::How::Off:
      if (deep.contexts.empty()) deep.contexts = deep.says_contexts;
      give_up_return(event.client);
      break;
    case ReturnEnded::How::Halfway:
      deep.stay = DeviceStay::Off;
      deep.must_return = true;
      rest(deep);
      break;
  }
  follow_last_report(event.client);
}

// Frees the room gathered so far, and delays the next attempt.
void NodePolicy::give_up_return(ClientId id) {
  std::erase_if(asks_,
                [&](const Ask& ask) { return ask.is_for_contexts && ask.asked.client == id; });
  books_.end_coming_back(id, NodeBooks::Arrived::No);
  DeepPauseFacts& deep = books_.find_client(id)->deep;
  deep.stay = DeviceStay::Off;
  rest(deep);
}

void NodePolicy::refuse_return(const LeaseRequested& asked) {
  give_up_return(asked.client);
  std::optional<PlaceId>& place = books_.find_client(asked.client)->deep.lacks_room_at;
  if (place) return;
  place = asked.place;
  decisions_.emplace_back(ReturnRefused{asked.client, asked.place, asked.bytes});
}

void NodePolicy::rest(DeepPauseFacts& deep) const {
  deep.return_rest =
      std::clamp(deep.return_rest, times_.shortest_return_rest, times_.longest_return_rest);
  deep.no_return_before = now_ + deep.return_rest;
  deep.return_rest *= 2;
}

bool NodePolicy::has_asks(ClientId id) const {
  return std::any_of(asks_.begin(), asks_.end(),
                     [&](const Ask& ask) { return ask.asked.client == id; });
}

void NodePolicy::note_who_is_quiet() {
  for (const auto& [id, known] : books_.clients()) {
    if (!known.deep.can_leave) continue;
    DeepPauseFacts& deep = books_.find_client(id)->deep;
    if (!deep.is_paused || deep.has_held_calls || has_asks(id)) {
      deep.quiet_since.reset();
    } else if (!deep.quiet_since) {
      deep.quiet_since = now_;
    }
  }
}

// A client that shares memory or events stays: others may use them while it is paused.
std::optional<Microseconds> NodePolicy::leaves_at(const NodeClient& client) const {
  const DeepPauseFacts& deep = client.deep;
  const auto& after = client.terms.deep_pause_after;
  const bool may_leave = deep.stay == DeviceStay::On && !deep.stays_on && client.joined.empty();
  if (!may_leave || !deep.quiet_since || !after) return {};
  return *after > unlimited - *deep.quiet_since ? unlimited : *deep.quiet_since + *after;
}

std::optional<Microseconds> NodePolicy::returns_at(ClientId id, const NodeClient& client) const {
  const DeepPauseFacts& deep = client.deep;
  if (deep.stay != DeviceStay::Off) return {};
  // Otherwise nothing waits for it, or a command has taken it off its devices.
  const bool is_awaited =
      deep.must_return || (deep.is_paused && (deep.has_held_calls || has_asks(id)));
  return is_awaited ? std::optional{deep.no_return_before} : std::nullopt;
}

void NodePolicy::send_helper(ClientId id, DeviceStay how) {
  DeepPauseFacts& deep = books_.find_client(id)->deep;
  deep.stay = how;
  deep.helper_until = now_ + times_.longest_helper;
}

bool NodePolicy::is_acted_on(const NodeClient& client, DeviceStay how) const {
  return client.deep.stay == how && now_ < client.deep.helper_until;
}

std::size_t NodePolicy::count_acted_on(DeviceStay how) const {
  return static_cast<std::size_t>(
      std::count_if(books_.clients().begin(), books_.clients().end(),
                    [&](const auto& client) { return is_acted_on(client.second, how); }));
}

void NodePolicy::let_leave() {
  std::size_t leaving = count_acted_on(DeviceStay::Leaving);
  for (const auto& [id, client] : books_.clients()) {
    const auto at = leaves_at(client);
    if (!at || *at > now_ || leaving >= times_.leave_at_once) continue;
    send_helper(id, DeviceStay::Leaving);
    decisions_.emplace_back(LeaveRequested{id});
    ++leaving;
  }
}

void NodePolicy::gather_for_returns() {
  for (const auto& [id, client] : books_.clients()) {
    const auto at = returns_at(id, client);
    if (!at || *at > now_) continue;
    for (const auto& [place, bytes] : client.deep.contexts) {
      if (client.deep.coming_back.contains(place)) continue;
      const NodePlace* const known = books_.find_place(place);
      if (bytes == 0 || known == nullptr || known->kind != PlaceKind::Device) continue;
      Ask ask{.asked = {.client = id, .request = 0, .place = place, .bytes = bytes}};
      ask.is_for_contexts = true;
      ask.began = now_;
      ask.deadline = deadline_of(ask);
      asks_.push_back(ask);
    }
    books_.find_client(id)->deep.stay = DeviceStay::Gathering;
  }
}

void NodePolicy::let_return() {
  std::size_t returning = count_acted_on(DeviceStay::Returning);
  for (const auto& [id, client] : books_.clients()) {
    if (client.deep.stay != DeviceStay::Gathering) continue;
    if (returning >= times_.return_at_once) return;
    const bool still_gathers = std::any_of(
        asks_.begin(), asks_.end(),
        [&, of = id](const Ask& ask) { return ask.is_for_contexts && ask.asked.client == of; });
    if (still_gathers) continue;
    send_helper(id, DeviceStay::Returning);
    books_.find_client(id)->deep.lacks_room_at.reset();
    ++returning;
    decisions_.emplace_back(ReturnRequested{id});
  }
}

bool NodePolicy::is_returning(const std::string& group) const {
  return std::any_of(books_.clients().begin(), books_.clients().end(), [&](const auto& one) {
    const NodeClient& client = one.second;
    return client.group == group && (client.deep.stay == DeviceStay::Gathering ||
                                     is_acted_on(client, DeviceStay::Returning));
  });
}

std::optional<Microseconds> NodePolicy::next_move_of_contexts() const {
  std::optional<Microseconds> next;
  const bool may_leave = count_acted_on(DeviceStay::Leaving) < times_.leave_at_once;
  for (const auto& [id, client] : books_.clients()) {
    const bool has_helper =
        is_acted_on(client, DeviceStay::Leaving) || is_acted_on(client, DeviceStay::Returning);
    const auto helper_until = has_helper ? std::optional{client.deep.helper_until} : std::nullopt;
    for (const auto& at :
         {may_leave ? leaves_at(client) : std::nullopt, returns_at(id, client), helper_until}) {
      if (at && (!next || *at < *next)) next = at;
    }
  }
  return next;
}

}  // namespace cuvmm::node
