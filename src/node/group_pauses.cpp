// SPDX-License-Identifier: Apache-2.0
#include "node/group_pauses.hpp"

#include <algorithm>

namespace cuvmm::node {

void GroupPauses::demanded(const std::string& group, ClientId client, Revision revision) {
  pauses_[group].members[client].open.insert(revision);
}

GroupPauses::GroupPause* GroupPauses::pause_of(ClientId client, Revision revision) {
  for (auto& [group, pause] : pauses_) {
    const auto member = pause.members.find(client);
    if (member != pause.members.end() && member->second.open.contains(revision)) return &pause;
  }
  return nullptr;
}

void GroupPauses::say(ClientId client, Member& member, GroupStep step) {
  if (step == GroupStep::Hold) member.standing = Standing::Asked;
  if (step == GroupStep::Run || step == GroupStep::Over) member.standing = Standing::Running;
  send(client, {member.revision, step});
}

void GroupPauses::send(ClientId client, const NextGroupStep& next) {
  ++steps_sent_[client];
  say_(client, next);
}

void GroupPauses::reported(ClientId client, const StandsStill& said) {
  GroupPause* const pause = pause_of(client, said.revision);
  if (pause == nullptr) return send(client, {said.revision, GroupStep::Over});
  Member& member = pause->members[client];
  member.revision = said.revision;
  // Out of date: it crossed a step. Its sender may have let calls run since.
  if (said.steps_heard && *said.steps_heard != steps_sent_[client]) return;
  if (member.standing == Standing::Running) return;
  member.standing = said.has_ended_work ? Standing::Still : Standing::Working;
  settle(*pause);
}

void GroupPauses::ended(ClientId client, Revision revision, ReclaimEnd how) {
  if (how == ReclaimEnd::ClientGone) steps_sent_.erase(client);
  GroupPause* const pause = pause_of(client, revision);
  if (pause == nullptr) return;
  Member& member = pause->members[client];
  member.open.erase(revision);
  pause->fails |= how == ReclaimEnd::Refused || how == ReclaimEnd::Expired;
  if (!member.open.empty()) return;
  pause->members.erase(client);
  settle(*pause);
  std::erase_if(pauses_, [](const auto& one) { return one.second.members.empty(); });
}

void GroupPauses::settle(GroupPause& pause) {
  const auto count = [&](Standing standing) {
    return std::count_if(pause.members.begin(), pause.members.end(),
                         [&](const auto& one) { return one.second.standing == standing; });
  };
  const auto tell_all = [&](Standing those, GroupStep step) {
    for (auto& [client, member] : pause.members) {
      if (member.standing == those) say(client, member, step);
    }
  };
  const auto all = static_cast<std::ptrdiff_t>(pause.members.size());
  const std::ptrdiff_t working = count(Standing::Working);
  const bool is_over = pause.fails && !pause.moves;
  if (!is_over && (pause.moves || count(Standing::Still) == all)) {
    pause.moves = true;
    tell_all(Standing::Still, GroupStep::Move);
  } else if (is_over) {
    for (const Standing one : {Standing::Still, Standing::Working}) tell_all(one, GroupStep::Over);
  } else if (working != 0 && working != all) {
    tell_all(Standing::Still, GroupStep::Run);
  } else if (working == 0) {
    tell_all(Standing::Running, GroupStep::Hold);
  } else {
    // The members spin on each other's work. The first one keeps its calls held, and its next
    // report tells when the others must hold theirs again.
    auto next = std::next(pause.members.begin());
    for (; next != pause.members.end(); ++next) say(next->first, next->second, GroupStep::Run);
  }
}

}  // namespace cuvmm::node
