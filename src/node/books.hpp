// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/decision.hpp"
#include "node/terms.hpp"

namespace cuvmm::node {

// One client's memory at one place.
struct ClientHolding {
  Size leased = 0;
  Size cache = 0;  // as it reports
  Size cold = 0;
  bool refuses_to_pause = false;  // until its next report
  bool is_away = false;           // a pause took memory here, and it has leased none since
};

struct NodeClient {
  ClientTerms terms;
  std::string group;               // an identity, not for display; empty until it is assigned
  std::set<ClientId> joined = {};  // clients that share memory or events with it
  std::map<PlaceId, ClientHolding> at;
  bool is_idle = false;
  Microseconds idle_since = 0;
  Microseconds stays_until = 0;  // end of its minimum stay; see PolicyTimes::stays
  bool is_stalled = false;       // missed a deadline, and has sent nothing since

  const ClientHolding* find(PlaceId place) const {
    const auto found = at.find(place);
    return found == at.end() ? nullptr : &found->second;
  }
  Size leased(PlaceId place) const {
    const ClientHolding* holding = find(place);
    return holding == nullptr ? 0 : holding->leased;
  }
  Size guarantee(PlaceId place) const { return terms.share_at(place).guarantee; }
  // Bytes above the guarantee, which others may ask back.
  Size borrowed(PlaceId place) const {
    const Size kept = guarantee(place);
    return leased(place) > kept ? leased(place) - kept : 0;
  }
};

struct NodePlace {
  PlaceKind kind = PlaceKind::Device;
  Size capacity = 0;
  Size foreign = 0;
  Size leased = 0;                         // the sum over all clients
  Microseconds turns_withheld_until = 0;   // requests that need a turn are refused
  Microseconds turns_suspended_until = 0;  // they wait
};

// Records who holds what. Makes no decisions.
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
  // The two, which must exist, may wait for each other until one of them is removed.
  void join(ClientId client, ClientId other);

  // Clients belong to one group if their terms name it or they are joined, directly or through
  // others. Returns those that are not in their right group, and the group to put them in. Parts of
  // a group that has fallen apart are different groups.
  struct Regrouping {
    ClientId client = 0;
    std::string from;  // empty: it is new
    std::string to;
  };
  std::vector<Regrouping> regroupings() const;

  void add_lease(ClientId client, PlaceId place, Size bytes);
  // Removes no more than the client has leased. Returns the bytes removed.
  Size remove_lease(ClientId client, PlaceId place, Size bytes);

  // Bytes that can be leased right away.
  Size free(PlaceId place) const;
  // By how much leased and foreign memory together exceed the capacity.
  Size overcommitted(PlaceId place) const;
  // Sum of the guarantees of all clients except `without`.
  Size guaranteed(PlaceId place, std::optional<ClientId> without = {}) const;
  // Bytes that are guaranteed to other clients but that they have not leased.
  Size unclaimed(PlaceId place, ClientId without) const;
  // Sum over all other clients of the larger of guarantee and lease.
  Size claimed(PlaceId place, ClientId without) const;
  // How much more the client could lease if all other groups returned what they have borrowed.
  Size reachable(PlaceId place, ClientId client) const;
  std::vector<Holder> holders(PlaceId place) const;

  std::vector<ClientId> members(const std::string& group) const;
  bool is_idle(const std::string& group) const;

 private:
  std::vector<ClientId> connected_with(ClientId client,
                                       std::map<std::string, std::vector<ClientId>>& named) const;

  Clients clients_;
  Places places_;
};

}  // namespace cuvmm::node
