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
  Size unmovable = 0;                     // borrowed bytes that a pause could not move
  Microseconds unmovable_until = 0;       // from then on, a pause is expected to move them too
  bool is_away = false;                   // a pause took memory here, and it has leased none since
  Size before_pause = 0;                  // leased when asked to pause; it may come back to that
  std::optional<Revision> overdue_pause;  // the last pause that it did not answer in time
};

// The policy's knowledge of a client that can leave its devices.
struct DeepPauseFacts {
  bool can_leave = false;
  bool is_paused = false;
  bool has_held_calls = false;
  bool says_off = false;                       // according to its last report
  std::map<PlaceId, Size> says_contexts = {};  // according to its last report
  DeviceStay stay = DeviceStay::On;
  std::optional<Microseconds> quiet_since = {};  // paused, and nothing waits for its return
  // It could not leave, or it has returned. Cleared by its next pause.
  bool stays_on = false;
  bool must_return = false;  // it stopped halfway between on and off
  // Its helper no longer counts against leave_at_once and return_at_once after this time.
  Microseconds helper_until = 0;
  Microseconds no_return_before = 0;
  Microseconds return_rest = 0;           // the wait after the next failed return; 0: the shortest
  std::map<PlaceId, Size> contexts = {};  // bytes that have left each device
  std::optional<PlaceId> lacks_room_at = {};  // the place without room for them
  std::map<PlaceId, Size> coming_back = {};   // the part with room reserved, or already back
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
  Size cache(PlaceId place) const {
    const ClientHolding* holding = find(place);
    return holding == nullptr ? 0 : holding->cache;
  }
  // Lowering a limit takes nothing from a client, so a paused one may return to what it had.
  Size may_lease(PlaceId place) const {
    const ClientHolding* holding = find(place);
    return std::max(terms.share_at(place).limit, holding == nullptr ? 0 : holding->before_pause);
  }
  Size guarantee(PlaceId place) const { return terms.share_at(place).guarantee; }
  // Bytes above the guarantee, which others may ask back.
  Size borrowed(PlaceId place) const {
    const Size kept = guarantee(place);
    return leased(place) > kept ? leased(place) - kept : 0;
  }
  // The borrowed bytes that a pause is expected to yield.
  Size reclaimable(PlaceId place, Microseconds now) const {
    const Size all = borrowed(place);
    return all - std::min(all, unmovable(place, now));
  }
  Size unmovable(PlaceId place, Microseconds now) const {
    const ClientHolding* const holding = find(place);
    return holding == nullptr || holding->unmovable_until <= now ? 0 : holding->unmovable;
  }
};

struct NodePlace {
  PlaceKind kind = PlaceKind::Device;
  Size capacity = 0;
  Size most_of_a_user = unlimited;
  Size foreign = 0;
  Size leased = 0;                         // the sum over all clients
  Size coming_back = 0;                    // room kept for contexts; foreign once they arrive
  Microseconds turns_withheld_until = 0;   // until then, refuse requests that need a turn
  Microseconds turns_suspended_until = 0;  // until then, such requests wait
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
  // Records that the two clients may wait for each other, until one is removed. Both must exist.
  void join(ClientId client, ClientId other);

  // Clients belong to one group if their terms name it or they are joined, directly or through
  // others. Returns the clients that are in the wrong group, each with its right group. If a group
  // has fallen apart, each part becomes a group of its own.
  struct Regrouping {
    ClientId client = 0;
    std::string from;  // empty: it is new
    std::string to;
  };
  std::vector<Regrouping> regroupings() const;

  void add_lease(ClientId client, PlaceId place, Size bytes);
  // Removes no more than the client has leased. Returns the bytes removed.
  Size remove_lease(ClientId client, PlaceId place, Size bytes);

  // Reserves room for the contexts of a client that is returning to its devices.
  void add_coming_back(ClientId client, PlaceId place, Size bytes);
  enum class Arrived : std::uint8_t { No, Yes };
  // Ends the reservation. Contexts that have arrived count as foreign memory from now on; otherwise
  // the room is free again.
  void end_coming_back(ClientId client, Arrived arrived);

  // Bytes that can be leased right away.
  Size free(PlaceId place) const;
  // Bytes in use or reserved beyond the capacity.
  Size overcommitted(PlaceId place) const;
  // Sum of the guarantees of all clients except `without`.
  Size guaranteed(PlaceId place, std::optional<ClientId> without = {}) const;
  // Guaranteed bytes that other clients have not leased.
  Size unclaimed(PlaceId place, ClientId without) const;
  // Sum over all other clients of the larger of guarantee and lease.
  Size claimed(PlaceId place, ClientId without) const;
  // How much more the client could lease if all other groups returned what they have borrowed, and
  // the members of its own group returned their caches, or everything that they have borrowed.
  enum class MembersGive : std::uint8_t { Caches, Everything };
  Size reachable(PlaceId place, ClientId client, MembersGive members = MembersGive::Caches) const;
  // The most that the client's contexts may take. They cannot be reclaimed, so they must leave room
  // for the guarantees of all other clients.
  Size room_for_contexts(PlaceId place, ClientId client) const;
  // How much more the clients of its user may lease together.
  Size left_to_user(PlaceId place, ClientId client) const;
  std::vector<Holder> holders(PlaceId place) const;

  std::vector<ClientId> members(const std::string& group) const;
  bool is_idle(const std::string& group) const;

 private:
  // The capacity minus foreign memory, room for contexts, and kept_by(id, client) of each client.
  template <class KeptBy>
  Size left_after(PlaceId place, KeptBy kept_by) const;
  std::vector<ClientId> connected_with(ClientId client,
                                       std::map<std::string, std::vector<ClientId>>& named) const;

  Clients clients_;
  Places places_;
};

}  // namespace cuvmm::node
