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
  bool refuses_to_pause = false;          // until its next report
  bool is_away = false;                   // a pause took memory here, and it has leased none since
  std::optional<Revision> overdue_pause;  // the last that it did not answer in time
};

// What is known of a client that can leave its devices.
struct DeepPauseFacts {
  bool can_leave = false;
  bool is_paused = false;
  bool has_held_calls = false;
  bool says_off = false;                       // its last report
  std::map<PlaceId, Size> says_contexts = {};  // the same
  DeviceStay stay = DeviceStay::On;
  std::optional<Microseconds> quiet_since = {};  // paused, and nothing waits for its return
  bool stays_on = false;          // until its next pause: it could not leave, or it has returned
  bool must_return = false;       // it stands halfway
  Microseconds helper_until = 0;  // while one acts on it: after that no other client waits for it
  Microseconds no_return_before = 0;
  Microseconds return_rest = 0;               // after the next failure; 0: the shortest
  std::map<PlaceId, Size> contexts = {};      // what has left each device
  std::optional<PlaceId> lacks_room_at = {};  // no room could be gathered for them there
  std::map<PlaceId, Size> coming_back = {};   // of that, what has room again, or is there again
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
  DeepPauseFacts deep = {};

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
  Size coming_back = 0;                    // the same, of contexts; foreign once they are there
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

  // Keeps room for contexts of a client that returns to its devices.
  void add_coming_back(ClientId client, PlaceId place, Size bytes);
  enum class Arrived : std::uint8_t { No, Yes };
  // The client has returned, and its contexts are foreign memory now; or it has not, and the room
  // is free again.
  void end_coming_back(ClientId client, Arrived arrived);

  // Bytes that can be leased right away.
  Size free(PlaceId place) const;
  // By how much all that is in use or kept exceeds the capacity.
  Size overcommitted(PlaceId place) const;
  // Sum of the guarantees of all clients except `without`.
  Size guaranteed(PlaceId place, std::optional<ClientId> without = {}) const;
  // Bytes that are guaranteed to other clients but that they have not leased.
  Size unclaimed(PlaceId place, ClientId without) const;
  // Sum over all other clients of the larger of guarantee and lease.
  Size claimed(PlaceId place, ClientId without) const;
  // How much more the client could lease if all other groups returned what they have borrowed.
  Size reachable(PlaceId place, ClientId client) const;
  // How much the client's contexts may take. They cannot be reclaimed, so they leave room for all
  // that is guaranteed to other clients.
  Size room_for_contexts(PlaceId place, ClientId client) const;
  std::vector<Holder> holders(PlaceId place) const;

  std::vector<ClientId> members(const std::string& group) const;
  bool is_idle(const std::string& group) const;

 private:
  // The capacity without foreign memory, room for contexts, and all that clients keep.
  template <class KeptBy>
  Size left_after(PlaceId place, KeptBy kept_by) const;
  std::vector<ClientId> connected_with(ClientId client,
                                       std::map<std::string, std::vector<ClientId>>& named) const;

  Clients clients_;
  Places places_;
};

}  // namespace cuvmm::node
