// SPDX-License-Identifier: Apache-2.0
// The broker's part in groups: clients that share memory become members of one, and members pause
// together.
#include <algorithm>

#include "base/log.hpp"
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

// If several members of a group are asked to pause at the same time, they pause together, provided
// that all of them support it.
void Broker::pause_groups_together(const Decisions& decisions) {
  std::map<std::string, std::vector<const ReclaimRequested*>> pauses;
  for (const Decision& decision : decisions) {
    const auto* const asked = std::get_if<ReclaimRequested>(&decision);
    if (asked == nullptr || asked->step != ReclaimStep::Pause) continue;
    const NodeClient* const client = policy_.books().find_client(asked->client);
    if (client != nullptr) pauses[client->group].push_back(asked);
  }
  for (const auto& of_group : pauses) {
    const auto& members = of_group.second;
    const bool is_one = std::all_of(members.begin(), members.end(), [&](const auto* one) {
      return one->client == members.front()->client;
    });
    const bool all_can = std::all_of(members.begin(), members.end(), [&](const auto* one) {
      return parties_[one->client].pauses_with_group;
    });
    if (is_one || !all_can) continue;
    for (const ReclaimRequested* const one : members) {
      group_pauses_.demanded(of_group.first, one->client, one->revision);
      say(one->client, PauseWithGroup{one->revision});
    }
  }
}

// Passes all changes in one call, since each call makes the time policy examine every client.
void Broker::regroup_time(const Decisions& decisions, Microseconds now) {
  std::map<ClientId, std::string> groups;
  for (const Decision& decision : decisions) {
    const auto* const changed = std::get_if<GroupChanged>(&decision);
    if (changed != nullptr) groups[changed->client] = changed->group;
  }
  if (!groups.empty()) time_.groups_changed(groups, now);
}

// Both sides must name the key, and belong to one user according to the kernel.
bool Broker::on(ConnectionId id, Party& party, const SharesHandles& said, Microseconds now) {
  if (!party.is_client) return false;
  if (party.waits_for_nobody) return true;
  for (const ShareKey& key : said.keys) {
    for (const ClientId other : share_keys_.name(id, party.peer.user, key)) {
      const NodeClient* const client = policy_.books().find_client(id);
      const NodeClient* const fellow = policy_.books().find_client(other);
      if (client == nullptr || fellow == nullptr || client->joined.contains(other)) continue;
      const bool is_news = client->group != fellow->group;
      if (!is_news && client->joined.size() >= ShareKeys::most_others) continue;
      if (is_news) {
        CUVMM_LOG(Info, "%s and %s share memory or events: they are one group now",
                  name_of(id).c_str(), name_of(other).c_str());
      }
      tell(ClientsJoined{id, other}, now);
    }
  }
  return true;
}

// For display: the name that a member has given the group; "with A" for a group without a name, of
// which A is the oldest member.
std::string Broker::group_name_of(ClientId client) const {
  const NodeClient* const known = policy_.books().find_client(client);
  if (known == nullptr) return "";
  const std::vector<ClientId> members = policy_.books().members(known->group);
  for (const ClientId member : members) {
    const auto party = parties_.find(member);
    if (party != parties_.end() && party->second.wishes && !party->second.wishes->group.empty()) {
      return party->second.wishes->group;
    }
  }
  return members.size() < 2 ? "" : "with " + name_of(members.front());
}

bool Broker::on(ConnectionId, Party& party, const PausesWithGroup&, Microseconds) {
  party.pauses_with_group = party.is_client;
  return party.is_client;
}

bool Broker::on(ConnectionId id, Party& party, const StandsStill& said, Microseconds) {
  if (!party.is_client) return false;
  group_pauses_.reported(id, said);
  return true;
}

}  // namespace cuvmm::daemon
