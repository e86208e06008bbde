// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "node/message.hpp"

namespace cuvmm::daemon {

// Pauses the members of a group together. A member whose work has ended waits until all members'
// work has ended. Work that does not end may be spinning on work that other members have not
// launched yet: then the others run on, and hold their calls again as soon as it has ended.
class GroupPauses {
 public:
  using Say = std::function<void(node::ClientId, const node::NextGroupStep&)>;
  explicit GroupPauses(Say say) : say_(std::move(say)) {}

  // All demands of one group's pause come before the first report.
  void demanded(const std::string& group, node::ClientId client, node::Revision revision);
  void reported(node::ClientId client, const node::StandsStill& said);
  // The demand has ended. If its client refused or missed it, no member moves, unless some already
  // do.
  void ended(node::ClientId client, node::Revision revision, node::ReclaimEnd how);

 private:
  enum class Standing : std::uint8_t { Asked, Still, Working, Running };
  struct Member {
    Standing standing = Standing::Asked;
    node::Revision revision = 0;  // of its last report
    std::set<node::Revision> open;
  };
  struct GroupPause {
    std::map<node::ClientId, Member> members;
    bool moves = false;
    bool fails = false;
  };

  // A client whose group has changed may be in an earlier pause of the other group, too.
  GroupPause* pause_of(node::ClientId client, node::Revision revision);
  void settle(GroupPause& pause);
  void say(node::ClientId client, Member& member, node::GroupStep step);

  const Say say_;
  std::map<std::string, GroupPause> pauses_;
};

}  // namespace cuvmm::daemon
