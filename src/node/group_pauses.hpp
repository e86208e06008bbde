// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "node/message.hpp"

namespace cuvmm::node {

// Pauses the members of a group together. A member whose work has ended waits until all members'
// work has ended. Work that does not end may be spinning on work that other members have not
// launched yet: then the others run on, and hold their calls again as soon as it has ended.
class GroupPauses {
 public:
  using Say = std::function<void(ClientId, const NextGroupStep&)>;
  explicit GroupPauses(Say say) : say_(std::move(say)) {}

  // All demands of one group's pause come before the first report.
  void demanded(const std::string& group, ClientId client, Revision revision);
  void reported(ClientId client, const StandsStill& said);
  // The demand has ended. If its client refused or missed it, no member moves, unless some already
  // do.
  void ended(ClientId client, Revision revision, ReclaimEnd how);

 private:
  enum class Standing : std::uint8_t { Asked, Still, Working, Running };
  struct Member {
    Standing standing = Standing::Asked;
    Revision revision = 0;  // of its last report
    std::set<Revision> open;
  };
  struct GroupPause {
    std::map<ClientId, Member> members;
    bool moves = false;
    bool fails = false;
  };

  // A client whose group has changed may be in an earlier pause of the other group, too.
  GroupPause* pause_of(ClientId client, Revision revision);
  void settle(GroupPause& pause);
  void say(ClientId client, Member& member, GroupStep step);
  void send(ClientId client, const NextGroupStep& next);

  const Say say_;
  std::map<ClientId, std::uint32_t> steps_sent_;
  std::map<std::string, GroupPause> pauses_;
};

}  // namespace cuvmm::node
