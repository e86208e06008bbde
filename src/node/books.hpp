// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/decision.hpp"
#include "node/terms.hpp"

namespace cuvmm::node {

// What one client has at one place.
struct ClientHolding {
  Size leased = 0;
  Size cache = 0;  // as it says
  Size cold = 0;
  bool refuses_to_pause = false;  // until it says something new
};

struct NodeClient {
  ClientTerms terms;
  std::string group;  // its own where the terms name none
  std::map<PlaceId, ClientHolding> at;
  bool is_idle = false;
  Microseconds idle_since = 0;
  Microseconds stays_until = 0;  // it was brought in at others' cost
  bool is_stalled = false;       // let a deadline pass, and has not been heard of since

  const ClientHolding* find(PlaceId place) const {
    const auto found = at.find(place);
    return found == at.end() ? nullptr : &found->second;
  }
  Size leased(PlaceId place) const {
    const ClientHolding* holding = find(place);
    return holding == nullptr ? 0 : holding->leased;
  }
  Size guarantee(PlaceId place) const { return terms.share_at(place).guarantee; }
  // What others may ask for.
  Size borrowed(PlaceId place) const {
    const Size kept = guarantee(place);
    return leased(place) > kept ? leased(place) - kept : 0;
  }
};

struct NodePlace {
  PlaceKind kind = PlaceKind::Device;
  Size capacity = 0;
  Size foreign = 0;
  Size leased = 0;  // the sum over all clients
  Microseconds without_turns_until = 0;
};

// Who holds what. Only changes its own numbers; decides nothing.
class NodeBooks {
 public:
  using Clients = std::map<ClientId, NodeClient>;
  using Places = std::map<PlaceId, NodePlace>;

  const Clients& clients() const { return clients_; }
  const Places& places() const { return places_; }
  NodeClient* find_client(ClientId client);
  const NodeClient* find_client(ClientId client) const;
  NodePlace* find_place(PlaceId place);
  const NodePlace* find_place(PlaceId place) const;
  NodePlace& place(PlaceId place) { return places_[place]; }

  NodeClient& add_client(ClientId client, const ClientTerms& terms);
  void remove_client(ClientId client);

  void add_lease(ClientId client, PlaceId place, Size bytes);
  // No more than it has; returns what was taken.
  Size remove_lease(ClientId client, PlaceId place, Size bytes);

  // What can be leased at once.
  Size free(PlaceId place) const;
  // By how much more is leased or foreign than there is.
  Size overcommitted(PlaceId place) const;
  // Of all clients but this one.
  Size guaranteed(PlaceId place, std::optional<ClientId> without = {}) const;
  // Of what others are guaranteed, what they have not leased.
  Size unclaimed(PlaceId place, ClientId without) const;
  // What others hold or are guaranteed, whichever is more.
  Size claimed(PlaceId place, ClientId without) const;
  // What the client could have in addition, if all that others have borrowed came back.
  Size reachable(PlaceId place, ClientId client) const;
  std::vector<Holder> holders(PlaceId place) const;

  std::vector<ClientId> members(const std::string& group) const;
  bool is_idle(const std::string& group) const;

 private:
  Clients clients_;
  Places places_;
};

}  // namespace cuvmm::node
