// SPDX-License-Identifier: Apache-2.0
// Clients of random histories that share memory, and the groups that follow.
#include "histories.hpp"

namespace cuvmm::test {

void NodeHistory::join() {
  const ClientId one = any_client()->first;
  const ClientId other = any_client()->first;
  if (one == other) return tell(ClientsJoined{one, last_client_ + 5});
  merges_ += group_of(one).contains(other) ? 0 : 1;
  clients_[one].joined.insert(other);
  clients_[other].joined.insert(one);
  tell(ClientsJoined{one, other});
}

void NodeHistory::take_note(const GroupChanged& changed) {
  EXPECT_TRUE(clients_.contains(changed.client));
  EXPECT_FALSE(changed.group.empty());
}

// By trying all pairs until nothing is added.
std::set<ClientId> NodeHistory::group_of(ClientId client) const {
  std::set<ClientId> group{client};
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [id, one] : clients_) {
      for (const auto& [other, fellow] : clients_) {
        const bool names_it = !one.terms.group.empty() && one.terms.group == fellow.terms.group;
        const bool are_tied = names_it || one.joined.contains(other);
        if (are_tied && group.contains(id)) grows |= group.insert(other).second;
      }
    }
  }
  return group;
}

void NodeHistory::check_groups() {
  for (const auto& [id, client] : clients_) {
    const std::vector<ClientId> members =
        policy_.books().members(policy_.books().find_client(id)->group);
    EXPECT_EQ(std::set<ClientId>(members.begin(), members.end()), group_of(id));
  }
}

}  // namespace cuvmm::test
