// SPDX-License-Identifier: Apache-2.0
#include "node/books.hpp"

namespace cuvmm::node {

NodeClient* NodeBooks::find_client(ClientId client) {
  const auto found = clients_.find(client);
  return found == clients_.end() ? nullptr : &found->second;
}
const NodeClient* NodeBooks::find_client(ClientId client) const {
  return const_cast<NodeBooks*>(this)->find_client(client);
}

NodePlace* NodeBooks::find_place(PlaceId place) {
  const auto found = places_.find(place);
  return found == places_.end() ? nullptr : &found->second;
}
const NodePlace* NodeBooks::find_place(PlaceId place) const {
  return const_cast<NodeBooks*>(this)->find_place(place);
}

NodeClient& NodeBooks::add_client(ClientId client, const ClientTerms& terms) {
  NodeClient& added = clients_[client];
  added.terms = terms;
  // No name from a client can begin with this character.
  added.group = terms.group.empty() ? "\x01" + std::to_string(client) : terms.group;
  return added;
}

void NodeBooks::remove_client(ClientId client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (const auto& [place, holding] : found->second.at) places_[place].leased -= holding.leased;
  clients_.erase(found);
}

void NodeBooks::add_lease(ClientId client, PlaceId place, Size bytes) {
  clients_[client].at[place].leased += bytes;
  places_[place].leased += bytes;
}

Size NodeBooks::remove_lease(ClientId client, PlaceId place, Size bytes) {
  NodeClient* const found = find_client(client);
  if (found == nullptr || found->find(place) == nullptr) return 0;
  ClientHolding& holding = found->at[place];
  const Size taken = std::min(bytes, holding.leased);
  holding.leased -= taken;
  holding.cache = std::min(holding.cache, holding.leased);
  holding.cold = std::min(holding.cold, holding.leased);
  places_[place].leased -= taken;
  return taken;
}

Size NodeBooks::free(PlaceId place) const {
  const NodePlace* const found = find_place(place);
  if (found == nullptr) return 0;
  const Size used = found->leased + found->foreign;
  return found->capacity > used ? found->capacity - used : 0;
}

Size NodeBooks::overcommitted(PlaceId place) const {
  const NodePlace* const found = find_place(place);
  if (found == nullptr) return 0;
  const Size used = found->leased + found->foreign;
  return used > found->capacity ? used - found->capacity : 0;
}

Size NodeBooks::guaranteed(PlaceId place, std::optional<ClientId> without) const {
  Size sum = 0;
  for (const auto& [id, client] : clients_) {
    if (id != without) sum += client.guarantee(place);
  }
  return sum;
}

Size NodeBooks::unclaimed(PlaceId place, ClientId without) const {
  Size sum = 0;
  for (const auto& [id, client] : clients_) {
    const Size guarantee = client.guarantee(place);
    const Size leased = client.leased(place);
    if (id != without && guarantee > leased) sum += guarantee - leased;
  }
  return sum;
}

Size NodeBooks::claimed(PlaceId place, ClientId without) const {
  Size sum = 0;
  for (const auto& [id, client] : clients_) {
    if (id != without) sum += std::max(client.guarantee(place), client.leased(place));
  }
  return sum;
}

Size NodeBooks::reachable(PlaceId place, ClientId client) const {
  const NodePlace* const found = find_place(place);
  const NodeClient* const asker = find_client(client);
  if (found == nullptr || asker == nullptr) return 0;
  Size unreachable = found->foreign;
  for (const auto& [id, other] : clients_) {
    const bool is_of_the_group = other.group == asker->group;
    unreachable += other.leased(place) - (is_of_the_group ? 0 : other.borrowed(place));
  }
  return found->capacity > unreachable ? found->capacity - unreachable : 0;
}

std::vector<Holder> NodeBooks::holders(PlaceId place) const {
  std::vector<Holder> all;
  for (const auto& [id, client] : clients_) {
    if (client.leased(place) != 0) {
      all.push_back({id, client.leased(place), client.guarantee(place)});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Holder& a, const Holder& b) { return a.leased > b.leased; });
  return all;
}

std::vector<ClientId> NodeBooks::members(const std::string& group) const {
  std::vector<ClientId> all;
  for (const auto& [id, client] : clients_) {
    if (client.group == group) all.push_back(id);
  }
  return all;
}

bool NodeBooks::is_idle(const std::string& group) const {
  return std::none_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
    return entry.second.group == group && !entry.second.is_idle;
  });
}

}  // namespace cuvmm::node
