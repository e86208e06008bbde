// SPDX-License-Identifier: Apache-2.0
// The consequences of an event: grants, refusals and reclaim requests, until nothing more changes.
#include "node/policy.hpp"

namespace cuvmm::node {

void NodePolicy::end_overdue() {
  for (const OpenReclaim& open : std::vector<OpenReclaim>{reclaims_.all()}) {
    if (open.deadline > now_) continue;
    NodeClient& client = *books_.find_client(open.client);
    client.is_stalled = true;
    if (open.step == ReclaimStep::Pause) {
      ClientHolding& holding = client.at[open.place];
      holding.overdue_pause = open.revision;
      holding.is_away |= open.given_so_far != 0;
    }
    end_reclaim(open.revision, ReclaimEnd::Expired);
  }
}

void NodePolicy::settle() {
  gather_for_returns();
  for (bool changes = true; changes;) {
    changes = false;
    for (const auto& [place, facts] : books_.places()) changes |= settle_place(place);
    note_who_waits_in_its_turn();
    changes |= end_turns();
    changes |= extend_turns();
    changes |= start_turns();
  }
  let_return();
  note_who_is_quiet();
  let_leave();
}

// Requests within a guarantee come first, then those of groups with a turn, then all others. Within
// each class, the order of arrival decides.
std::vector<std::size_t> NodePolicy::order_of_asks(PlaceId place) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < asks_.size(); ++i) {
    if (asks_[i].asked.place == place) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return right_of(asks_[a]) > right_of(asks_[b]);
  });
  return order;
}

Right NodePolicy::right_of(const Ask& ask) const {
  const NodeClient& client = *books_.find_client(ask.asked.client);
  const Size guarantee = client.guarantee(ask.asked.place);
  const Size leased = client.leased(ask.asked.place);
  if (leased <= guarantee && ask.asked.bytes <= guarantee - leased) return Right::Guarantee;
  return turns_.covers(client.group, ask.asked.place) ? Right::Turn : Right::Plain;
}

// Nothing is reclaimed on the host, so guaranteed memory is kept free there.
Size NodePolicy::free_of_guarantees(PlaceId place, ClientId asker) const {
  const Size free = books_.free(place);
  const Size kept = books_.unclaimed(place, asker);
  return free > kept ? free - kept : 0;
}

std::optional<RefusalReason> NodePolicy::impossible(const Ask& ask) const {
  const auto& [id, request, place, bytes, at_once, in_parts] = ask.asked;
  const NodeClient& client = *books_.find_client(id);
  const Size may_lease = client.may_lease(place);
  const Size leased = client.leased(place);
  const bool is_beyond_limit = leased > may_lease || bytes > may_lease - leased;
  if (is_beyond_limit && !ask.is_for_contexts) return RefusalReason::BeyondLimit;
  if (bytes > books_.left_to_user(place, id) && !ask.is_for_contexts) {
    return RefusalReason::BeyondLimit;
  }
  const bool is_host = books_.find_place(place)->kind == PlaceKind::Host;
  const Size most = ask.is_for_contexts ? books_.room_for_contexts(place, id)
                    : is_host           ? free_of_guarantees(place, id)
                                        : books_.reachable(place, id);
  if (bytes > most) return RefusalReason::BeyondCapacity;
  if (ask.deadline <= now_) return RefusalReason::TookTooLong;
  return {};
}

// Whether a member of the group may have freed what the request lacks but not reported it yet.
// Members may learn of it from each other before the service does.
bool NodePolicy::may_have_been_freed(const Ask& ask) const {
  const PlaceId place = ask.asked.place;
  const bool is_host = books_.find_place(place)->kind == PlaceKind::Host;
  if (ask.asked.at_once || ask.is_for_contexts || is_host) return false;
  if (now_ >= ask.began + times_.reports_within) return false;
  return ask.asked.bytes <=
         books_.reachable(place, ask.asked.client, NodeBooks::MembersGive::Everything);
}

// Ends at most one request, or grants a part of one, since each changes what is left for the
// others. Returns whether it did.
bool NodePolicy::settle_place(PlaceId place) {
  reclaim_beyond_limits(place);
  Gathering gathering;
  for (const std::size_t index : order_of_asks(place)) {
    if (settle_ask(index, gathering)) return true;
  }
  reclaim_overcommitted(place);
  return false;
}

bool NodePolicy::settle_ask(std::size_t index, Gathering& gathering) {
  Ask& ask = asks_[index];
  if (const auto why = impossible(ask)) {
    if (*why == RefusalReason::BeyondCapacity && may_have_been_freed(ask)) return false;
    return refuse(index, *why);
  }
  if (comes_back_in_turn(ask)) {
    if (ask.asked.at_once) return refuse(index, RefusalReason::NotAtOnce);
    if (!ask.waits_for_turn) wait_for_turn(ask);
    return false;
  }
  const bool fits = ask.asked.bytes <= books_.free(ask.asked.place);
  if (fits && !gathering.is_reserved_for_others) return grant(index);
  if (ask.asked.at_once) return refuse(index, RefusalReason::NotAtOnce);
  const Right right = right_of(ask);
  if (right != Right::Plain) {
    ask.waits_for_turn = false;  // new terms may have given it a better right
  } else if (gathering.is_for_plain) {
    return false;
  }
  const bool is_first = !gathering.is_reserved_for_others;
  if (gather_for(ask, right, gathering)) return is_first && ask.asked.in_parts && grant_part(ask);
  if (right != Right::Plain) return refuse(index, RefusalReason::NotReturned);
  if (gathering.is_reserved_for_others) return false;
  if (turns_are_withheld(group_of(ask))) return refuse(index, RefusalReason::TurnsAreOff);
  if (!ask.waits_for_turn) wait_for_turn(ask);
  return false;
}

// Returns whether the request must wait for memory that is being reclaimed.
bool NodePolicy::gather_for(Ask& ask, Right right, Gathering& gathering) {
  const PlaceId place = ask.asked.place;
  const Size wanted = gathering.wanted + ask.asked.bytes;
  const Size there = books_.free(place) + reclaims_.expected(place);
  if (wanted > there) {
    const Shortage shortage{place, wanted - there, right, ask.asked.client, turns_.holders(place),
                            now_};
    ask.gathers |= ask_for(shortage, ask.deadline);
  }
  const bool is_on_its_way =
      reclaims_.expected(place) != 0 || (right != Right::Plain && lenders_are_asked(place));
  if (!is_on_its_way) ask.gathers = false;
  // A request that waits for a turn gets no memory that is reclaimed for others.
  if (!is_on_its_way || (ask.waits_for_turn && !ask.gathers)) return false;
  gathering.wanted = wanted;
  gathering.is_reserved_for_others = true;
  gathering.is_for_plain |= right == Right::Plain;
  return true;
}

// A group that is being paused is not asked a second time. Memory that a member has borrowed since
// then can be asked for once the pause request has ended.
bool NodePolicy::lenders_are_asked(PlaceId place) const {
  return std::any_of(reclaims_.all().begin(), reclaims_.all().end(), [&](const OpenReclaim& open) {
    const std::vector<ClientId> fellows = books_.members(books_.find_client(open.client)->group);
    return std::any_of(fellows.begin(), fellows.end(), [&](ClientId fellow) {
      return books_.find_client(fellow)->borrowed(place) != 0;
    });
  });
}

// Clients that got memory earlier complete their minimum stay first.
void NodePolicy::wait_for_turn(Ask& ask) {
  ask.waits_for_turn = true;
  ask.no_turn_before = now_;
  for (const auto& [id, client] : books_.clients()) {
    ask.no_turn_before = std::max(ask.no_turn_before, client.stays_until);
  }
}

bool NodePolicy::ask_for(const Shortage& shortage, Microseconds latest) {
  const ReclaimPlan plan = plan_reclaims(books_, reclaims_, shortage);
  for (const PlannedReclaim& planned : plan) ask_back(planned, latest, shortage.asker);
  return !plan.empty();
}

void NodePolicy::reclaim_overcommitted(PlaceId place) {
  const Size overcommitted = books_.overcommitted(place);
  const Size expected = reclaims_.expected(place);
  if (overcommitted <= expected) return;
  ask_for({place, overcommitted - expected, Right::Overcommit, {}, {}, now_}, unlimited);
}

Microseconds NodePolicy::reclaim_time(ReclaimStep step, Size bytes) const {
  return times_.reclaim_within + (step == ReclaimStep::Cache ? 0 : time_to_move(times_, bytes));
}

void NodePolicy::ask_back(const PlannedReclaim& planned, Microseconds latest,
                          std::optional<ClientId> asker) {
  OpenReclaim request{
      .client = planned.client,
      .place = planned.place,
      .step = planned.step,
      .bytes = planned.bytes,
      .began = now_,
      .deadline = std::min(latest, now_ + reclaim_time(planned.step, planned.bytes))};
  if (planned.step == ReclaimStep::Pause) {
    NodeClient& client = *books_.find_client(planned.client);
    ClientHolding& holding = client.at[planned.place];
    holding.before_pause = std::max(holding.before_pause, holding.leased);
    request.longest_work = longest_in_flight(client.group);
    request.work_within = std::min(request.longest_work, latest - std::min(latest, now_));
  }
  const OpenReclaim& open = reclaims_.open(request);
  decisions_.emplace_back(ReclaimRequested{open.client, open.revision, open.place, open.step,
                                           open.bytes, open.deadline, open.work_within, asker});
}

// How long the group's work may stay in flight without outlasting a turn.
Microseconds NodePolicy::longest_in_flight(const std::string& group) const {
  Size on_devices = 0;
  for (const ClientId id : books_.members(group)) {
    for (const auto& [place, holding] : books_.find_client(id)->at) {
      if (books_.find_place(place)->kind == PlaceKind::Device) on_devices += holding.leased;
    }
  }
  const Microseconds usual_swap = time_at_rate(on_devices, times_.swapped_per_second);
  return std::max(times_.outlasts, turns_.quantum_of(group, usual_swap));
}

void NodePolicy::end_reclaim(Revision revision, ReclaimEnd how) {
  const OpenReclaim ended = reclaims_.end(revision);
  decisions_.emplace_back(ReclaimEnded{ended.client, ended.revision, how});
}

// If a limit was lowered below what is leased, asks the client to free what it can without a pause.
void NodePolicy::reclaim_beyond_limits(PlaceId place) {
  if (books_.find_place(place)->kind == PlaceKind::Host) return;
  std::vector<PlannedReclaim> planned;
  for (const auto& [id, client] : books_.clients()) {
    const Size leased = client.leased(place);
    const Size limit = client.terms.share_at(place).limit;
    if (leased <= limit || client.is_stalled || reclaims_.has(id, place)) continue;
    const ClientHolding& holding = *client.find(place);
    const Size bytes = std::min(leased - limit, holding.cache + holding.cold);
    const ReclaimStep step = bytes <= holding.cache ? ReclaimStep::Cache : ReclaimStep::Cold;
    if (bytes != 0) planned.push_back({id, place, step, bytes});
  }
  for (const PlannedReclaim& one : planned) ask_back(one, unlimited, {});
}

bool NodePolicy::grant(std::size_t ask) {
  const Ask granted = asks_[ask];
  const std::string& group = group_of(granted);
  asks_.erase(asks_.begin() + static_cast<std::ptrdiff_t>(ask));
  const auto& [client, request, place, bytes, at_once, in_parts] = granted.asked;
  if (granted.is_for_contexts) return books_.add_coming_back(client, place, bytes), true;
  turns_.note_outcome(group, place, TurnTable::Outcome::Granted, now_);
  books_.add_lease(client, place, bytes);
  NodeClient& holder = *books_.find_client(client);
  ClientHolding& holding = holder.at[place];
  holding.is_away = false;
  if (holding.leased >= holding.before_pause) holding.before_pause = 0;
  // When clients take turns, the turn replaces the minimum stay.
  const bool turns_are_taken =
      !turns_.turns().empty() || std::any_of(asks_.begin(), asks_.end(),
                                             [](const Ask& other) { return other.waits_for_turn; });
  if (granted.gathers && !turns_are_taken) holder.stays_until = now_ + times_.stays;
  decisions_.emplace_back(LeaseGranted{client, request, place, bytes});
  return true;
}

// Lets the client copy into the memory that is free already, while the clients that make room for
// the rest are still copying theirs out.
bool NodePolicy::grant_part(Ask& ask) {
  LeaseRequested& asked = ask.asked;
  const Size part = std::min(books_.free(asked.place), asked.bytes);
  if (part == 0 || part < std::min(256 * MiB, books_.find_place(asked.place)->capacity / 64)) {
    return false;
  }
  books_.add_lease(asked.client, asked.place, part);
  asked.bytes -= part;
  decisions_.emplace_back(PartGranted{asked.client, asked.request, asked.place, part});
  return true;
}

bool NodePolicy::refuse(std::size_t ask, RefusalReason why) {
  const LeaseRequested asked = asks_[ask].asked;
  if (asks_[ask].is_for_contexts) return refuse_return(asked), true;
  if (why == RefusalReason::NotReturned) {
    turns_.note_outcome(group_of(asks_[ask]), asked.place, TurnTable::Outcome::Failed, now_);
  }
  asks_.erase(asks_.begin() + static_cast<std::ptrdiff_t>(ask));
  refuse_now(asked, why);
  return true;
}

void NodePolicy::refuse_now(const LeaseRequested& asked, RefusalReason why) {
  const NodePlace* const place = books_.find_place(asked.place);
  decisions_.emplace_back(LeaseRefused{.client = asked.client,
                                       .request = asked.request,
                                       .place = asked.place,
                                       .bytes = asked.bytes,
                                       .why = why,
                                       .free = books_.free(asked.place),
                                       .foreign = place == nullptr ? 0 : place->foreign,
                                       .holders = books_.holders(asked.place)});
}

}  // namespace cuvmm::node
