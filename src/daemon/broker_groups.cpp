// SPDX-License-Identifier: Apache-2.0
// The broker's part in pausing the members of a group together.
#include <algorithm>

#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

// Members of a group that are to pause at once do it together, if all of them can.
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
