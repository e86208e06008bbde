// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "node/message.hpp"

namespace cuvmm::daemon {

// The keys of shared memory and shared events that clients have named. Keeps only the newest keys
// of each client.
class ShareKeys {
 public:
  // Many clients may name many keys, so this bounds the time that one message takes, and the number
  // of pairs of clients that share.
  static constexpr std::size_t most_others = 32;

  // Returns the other clients of that user that have named the key, the latest connected first and
  // at most `most_others`; none if the client has named it before.
  std::vector<node::ClientId> name(node::ClientId client, uid_t user, const node::ShareKey& key);
  void forget(node::ClientId client);

 private:
  using OfUser = std::pair<uid_t, node::ShareKey>;
  void drop(node::ClientId client, const OfUser& key);

  std::map<OfUser, std::set<node::ClientId>> clients_;
  std::map<node::ClientId, std::deque<OfUser>> named_;  // the oldest first
};

}  // namespace cuvmm::daemon
