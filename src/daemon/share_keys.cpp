// SPDX-License-Identifier: Apache-2.0
#include "daemon/share_keys.hpp"

namespace cuvmm::daemon {

using node::ClientId;

std::vector<ClientId> ShareKeys::name(ClientId client, uid_t user, const node::ShareKey& key) {
  const OfUser named{user, key};
  std::set<ClientId>& clients = clients_[named];
  if (clients.contains(client)) return {};
  std::vector<ClientId> others;
  for (auto other = clients.rbegin(); other != clients.rend(); ++other) {
    if (others.size() == most_others) break;
    others.push_back(*other);
  }
  clients.insert(client);
  std::deque<OfUser>& own = named_[client];
  own.push_back(named);
  if (own.size() > node::most_share_keys) {
    drop(client, own.front());
    own.pop_front();
  }
  return others;
}

void ShareKeys::forget(ClientId client) {
  const auto own = named_.find(client);
  if (own == named_.end()) return;
  for (const OfUser& key : own->second) drop(client, key);
  named_.erase(own);
}

void ShareKeys::drop(ClientId client, const OfUser& key) {
  const auto clients = clients_.find(key);
  clients->second.erase(client);
  if (clients->second.empty()) clients_.erase(clients);
}

}  // namespace cuvmm::daemon
