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
  return added;
}

void NodeBooks::remove_client(ClientId client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (const auto& [place, holding] : found->second.at) places_[place].leased -= holding.leased;
  end_coming_back(client, Arrived::No);
  for (const ClientId other : found->second.joined) clients_.at(other).joined.erase(client);
  clients_.erase(found);
}

void NodeBooks::join(ClientId client, ClientId other) {
  if (client == other) return;
  clients_.at(client).joined.insert(other);
  clients_.at(other).joined.insert(client);
}

// Returns the client and all that are joined to it. Takes those whose terms name a group from
// `named`.
std::vector<ClientId> NodeBooks::connected_with(
    ClientId client, std::map<std::string, std::vector<ClientId>>& named) const {
  std::vector<ClientId> found{client};
  std::set<ClientId> seen{client};
  const auto add = [&](ClientId id) {
    if (seen.insert(id).second) found.push_back(id);
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const NodeClient& member = clients_.at(found[i]);
    for (const ClientId other : member.joined) add(other);
    const auto fellows = named.extract(member.terms.group);
    if (fellows.empty()) continue;
    for (const ClientId other : fellows.mapped()) add(other);
  }
  return found;
}

// A group keeps the name of its oldest member's group, as far as that is free.
std::vector<NodeBooks::Regrouping> NodeBooks::regroupings() const {
  std::map<std::string, std::vector<ClientId>> named;
  for (const auto& [id, client] : clients_) {
    if (!client.terms.group.empty()) named[client.terms.group].push_back(id);
  }
  std::vector<Regrouping> all;
  std::set<ClientId> placed;
  std::set<std::string> taken;
  for (const auto& [id, oldest] : clients_) {
    if (placed.contains(id)) continue;
    // No name from a client can begin with this character.
    const std::string own = "\x01" + std::to_string(id);
    std::string name = !oldest.group.empty()         ? oldest.group
                       : !oldest.terms.group.empty() ? oldest.terms.group
                                                     : own;
    if (taken.contains(name)) name = own;
    while (!taken.insert(name).second) name.insert(name.begin(), '\x01');
    for (const ClientId member : connected_with(id, named)) {
      placed.insert(member);
      const std::string& now = clients_.at(member).group;
      if (now != name) all.push_back({member, now, name});
    }
  }
  return all;
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
  holding.unmovable = std::min(holding.unmovable, holding.leased);
  places_[place].leased -= taken;
  return taken;
}

void NodeBooks::add_coming_back(ClientId client, PlaceId place, Size bytes) {
  clients_[client].deep.coming_back[place] += bytes;
  places_[place].coming_back += bytes;
}

void NodeBooks::end_coming_back(ClientId client, Arrived arrived) {
  NodeClient* const found = find_client(client);
  if (found == nullptr) return;
  for (const auto& [place, bytes] : found->deep.coming_back) {
    NodePlace& facts = places_[place];
    facts.coming_back -= bytes;
    if (arrived == Arrived::Yes) facts.foreign = std::min(facts.foreign + bytes, facts.capacity);
  }
  found->deep.coming_back.clear();
}

Size NodeBooks::free(PlaceId place) const {
  const NodePlace* const found = find_place(place);
  if (found == nullptr) return 0;
  const Size used = found->leased + found->foreign + found->coming_back;
  return found->capacity > used ? found->capacity - used : 0;
}

Size NodeBooks::overcommitted(PlaceId place) const {
  const NodePlace* const found = find_place(place);
  if (found == nullptr) return 0;
  const Size used = found->leased + found->foreign + found->coming_back;
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

template <class KeptBy>
Size NodeBooks::left_after(PlaceId place, KeptBy kept_by) const {
  const NodePlace* const found = find_place(place);
  if (found == nullptr) return 0;
  Size kept = found->foreign + found->coming_back;
  for (const auto& [id, client] : clients_) kept += kept_by(id, client);
  return found->capacity > kept ? found->capacity - kept : 0;
}

Size NodeBooks::reachable(PlaceId place, ClientId client, MembersGive members) const {
  const NodeClient* const asker = find_client(client);
  if (asker == nullptr) return 0;
  return left_after(place, [&](ClientId id, const NodeClient& other) {
    if (id == client) return other.leased(place);
    const Size borrowed = other.borrowed(place);
    const bool gives_everything = other.group != asker->group || members == MembersGive::Everything;
    if (gives_everything) return other.leased(place) - borrowed;
    // Members are not paused for each other, but their caches may be reclaimed.
    const Size cache = other.is_stalled ? 0 : other.cache(place);
    return other.leased(place) - std::min(cache, borrowed);
  });
}

Size NodeBooks::room_for_contexts(PlaceId place, ClientId client) const {
  const NodeClient* const asker = find_client(client);
  if (asker == nullptr) return 0;
  return left_after(place, [&](ClientId id, const NodeClient& other) {
    const Size guarantee = id == client ? 0 : other.guarantee(place);
    const bool is_of_the_group = other.group == asker->group;
    return is_of_the_group ? std::max(guarantee, other.leased(place)) : guarantee;
  });
}

Size NodeBooks::left_to_user(PlaceId place, ClientId client) const {
  const NodeClient* const asker = find_client(client);
  const NodePlace* const found = find_place(place);
  if (asker == nullptr || found == nullptr || !asker->terms.untrusted_user) return unlimited;
  Size leased = 0;
  for (const auto& [id, other] : clients_) {
    if (other.terms.untrusted_user == asker->terms.untrusted_user) leased += other.leased(place);
  }
  return found->most_of_a_user > leased ? found->most_of_a_user - leased : 0;
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
