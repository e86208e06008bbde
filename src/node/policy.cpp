// SPDX-License-Identifier: Apache-2.0
// How the policy handles events. Their consequences are in policy_settle.cpp and
// policy_turns.cpp.
#include "node/policy.hpp"

namespace cuvmm::node {

Decisions NodePolicy::handle(const NodeEvent& event, Microseconds now) {
  now_ = std::max(now_, now);
  decisions_.clear();
  end_overdue();
  clear_stalled(event);
  std::visit([this](const auto& one) { on(one); }, event);
  if (can_change_anything(event)) settle();
  return std::move(decisions_);
}

Decisions NodePolicy::withhold_turns(PlaceId place, Microseconds until, Microseconds now) {
  now_ = std::max(now_, now);
  decisions_.clear();
  NodePlace* const found = books_.find_place(place);
  if (found == nullptr) return {};
  found->turns_withheld_until = std::max(found->turns_withheld_until, until);
  end_turns_at({place});
  settle();
  return std::move(decisions_);
}

std::optional<Microseconds> NodePolicy::next_wake() const {
  std::optional<Microseconds> next;
  const auto consider = [&](std::optional<Microseconds> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (const Ask& ask : asks_) {
    consider(ask.deadline);
    if (may_have_been_freed(ask)) consider(ask.began + times_.reports_within);
    if (!ask.waits_for_turn) continue;
    const Microseconds earliest = earliest_turn_for(ask);
    if (earliest > now_) consider(earliest);
  }
  for (const OpenReclaim& open : reclaims_.all()) consider(open.deadline);
  for (const GroupTurn& turn : turns_.turns()) consider(turn.ends_at());
  consider(next_move_of_contexts());
  return next;
}

Size NodePolicy::waited_for(ClientId client, PlaceId place) const {
  Size sum = 0;
  for (const Ask& ask : asks_) {
    if (ask.asked.client == client && ask.asked.place == place) sum += ask.asked.bytes;
  }
  // Between two attempts to return there is no request for its contexts, but it still waits.
  const NodeClient* const known = books_.find_client(client);
  if (known == nullptr || known->deep.stay != DeviceStay::Off) return sum;
  if (known->deep.lacks_room_at != place) return sum;
  const auto contexts = known->deep.contexts.find(place);
  return sum + (contexts == known->deep.contexts.end() ? 0 : contexts->second);
}

// A report changes nothing while no client waits for memory or holds too much. That is nearly all
// of the traffic, and settling looks at every client.
bool NodePolicy::can_change_anything(const NodeEvent& event) const {
  const auto* const report = std::get_if<UseReported>(&event);
  const NodeClient* const client = report == nullptr ? nullptr : books_.find_client(report->client);
  if (client == nullptr) return true;
  const bool is_quiet = asks_.empty() && reclaims_.all().empty() && turns_.turns().empty();
  return !is_quiet ||
         std::any_of(books_.places().begin(), books_.places().end(), [&](const auto& place) {
           const Size limit = client->terms.share_at(place.first).limit;
           return client->leased(place.first) > limit || books_.overcommitted(place.first) != 0;
         });
}

// A client that let a deadline pass is not asked again until it sends something.
void NodePolicy::clear_stalled(const NodeEvent& event) {
  std::visit(
      [this](const auto& one) {
        if constexpr (requires { one.client; }) {
          NodeClient* const client = books_.find_client(one.client);
          if (client != nullptr) client->is_stalled = false;
        }
      },
      event);
}

void NodePolicy::on(const PlaceConfigured& event) {
  const Size guaranteed = books_.guaranteed(event.place);
  if (guaranteed > event.capacity) {
    decisions_.emplace_back(CapacityRefused{event.place, guaranteed, event.capacity});
    return;
  }
  NodePlace& place = books_.place(event.place);
  place.kind = event.kind;
  place.capacity = event.capacity;
  place.most_of_a_user = event.most_of_a_user;
}

void NodePolicy::on(const ForeignUseSeen& event) {
  NodePlace* const place = books_.find_place(event.place);
  if (place == nullptr) return;
  // Contexts on their way back may have arrived already, and their room is counted separately.
  // While room is still being gathered, none can have arrived.
  Size returning = 0;
  for (const auto& [id, client] : books_.clients()) {
    const auto back = client.deep.coming_back.find(event.place);
    const bool counts = client.deep.stay != DeviceStay::Gathering;
    returning += counts && back != client.deep.coming_back.end() ? back->second : 0;
  }
  const Size more = event.bytes > place->foreign ? event.bytes - place->foreign : 0;
  place->foreign = std::min(event.bytes - std::min(more, returning), place->capacity);
}

bool NodePolicy::terms_can_be_held(ClientId client, const ClientTerms& terms) {
  for (const auto& [place, share] : terms.shares) {
    if (share.guarantee == 0) continue;
    const NodePlace* const known = books_.find_place(place);
    const Size capacity = known == nullptr ? 0 : known->capacity;
    const bool is_host = known != nullptr && known->kind == PlaceKind::Host;
    const Size others = is_host ? books_.claimed(place, client) : books_.guaranteed(place, client);
    if (share.guarantee <= capacity && others <= capacity - share.guarantee) continue;
    const Size sum = share.guarantee > unlimited - others ? unlimited : others + share.guarantee;
    decisions_.emplace_back(TermsRefused{client, place, sum, capacity});
    return false;
  }
  return true;
}

// What the client holds was taken for foreign memory until now, as after a restart of the service,
// unless it reconnected before its departure was noticed.
void NodePolicy::on(const ClientCame& event) {
  std::map<PlaceId, Size> known_before;
  if (const NodeClient* const before = books_.find_client(event.client)) {
    for (const auto& [place, holding] : before->at) known_before[place] = holding.leased;
  }
  remove_client(event.client);
  if (!terms_can_be_held(event.client, event.terms)) return;
  NodeClient& client = books_.add_client(event.client, event.terms);
  client.terms.weight = std::max(1U, event.terms.weight);
  client.is_idle = true;
  client.idle_since = now_;
  for (const auto& [id, bytes] : event.held) {
    NodePlace* const place = books_.find_place(id);
    if (place == nullptr) continue;
    const Size held = std::min(bytes, most_credible(event.client, id));
    books_.add_lease(event.client, id, held);
    place->foreign -= std::min(place->foreign, held - std::min(held, known_before[id]));
  }
  regroup();
  if (const GroupTurn* const turn = turns_.find(client.group)) {
    decisions_.emplace_back(TurnStarted{event.client, turn->quantum});
  }
}

// The most that a client that has just come can have held at the place.
Size NodePolicy::most_credible(ClientId client, PlaceId place) const {
  const NodePlace& facts = *books_.find_place(place);
  if (!books_.find_client(client)->terms.untrusted_user) return facts.capacity;
  return std::min(books_.free(place) + facts.foreign, books_.left_to_user(place, client));
}

void NodePolicy::on(const TermsChanged& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr || !terms_can_be_held(event.client, event.terms)) return;
  const std::string group = client->terms.group;
  std::vector<Right> rights;
  for (const Ask& ask : asks_) rights.push_back(right_of(ask));
  // Charge the turn so far at the group's old weight.
  turns_.count_until_now(client->group, weight_of(client->group), now_);
  client->terms = event.terms;
  client->terms.group = group;
  client->terms.weight = std::max(1U, event.terms.weight);
  for (std::size_t i = 0; i < asks_.size(); ++i) {
    if (right_of(asks_[i]) == rights[i]) continue;
    asks_[i].began = now_;
    asks_[i].deadline = deadline_of(asks_[i]);
  }
}

void NodePolicy::on(const ClientLeft& event) {
  remove_client(event.client);
}

void NodePolicy::remove_client(ClientId client) {
  const NodeClient* const found = books_.find_client(client);
  if (found == nullptr) return;
  const std::string group = found->group;
  std::erase_if(asks_, [&](const Ask& ask) { return ask.asked.client == client; });
  for (const OpenReclaim& open : std::vector<OpenReclaim>{reclaims_.all()}) {
    if (open.client == client) end_reclaim(open.revision, ReclaimEnd::ClientGone);
  }
  books_.remove_client(client);
  if (books_.members(group).empty()) turns_.forget(group);
  regroup();
}

void NodePolicy::on(const ClientsJoined& event) {
  const NodeClient* const client = books_.find_client(event.client);
  const NodeClient* const other = books_.find_client(event.other);
  if (client == nullptr || other == nullptr) return;
  books_.join(event.client, event.other);
  if (client->group != other->group) regroup();
}

// Groups that merge or fall apart lose their turns, since a turn belongs to a group as a whole. A
// new group counts as having used as much time as the part that has used the most.
void NodePolicy::regroup() {
  const std::vector<NodeBooks::Regrouping> all = books_.regroupings();
  for (const NodeBooks::Regrouping& one : all) {
    if (one.from.empty()) continue;
    for (const std::string& group : {one.from, one.to}) {
      if (turns_.has_turn(group)) end_turn(group);
    }
  }
  for (const NodeBooks::Regrouping& one : all) {
    books_.find_client(one.client)->group = one.to;
    if (one.from.empty()) continue;
    turns_.inherit(one.from, one.to);
    decisions_.emplace_back(GroupChanged{one.client, one.to});
  }
  for (const NodeBooks::Regrouping& one : all) {
    if (!one.from.empty() && books_.members(one.from).empty()) turns_.forget(one.from);
  }
}

void NodePolicy::on(const LeaseRequested& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr) return;
  client->is_idle = false;  // it is inside a call that needs memory
  client->deep.quiet_since.reset();
  if (books_.find_place(event.place) == nullptr) {
    return refuse_now(event, RefusalReason::UnknownPlace);
  }
  const auto waiting = std::count_if(asks_.begin(), asks_.end(), [&](const Ask& ask) {
    return ask.asked.client == event.client && !ask.is_for_contexts;
  });
  if (static_cast<std::size_t>(waiting) >= most_waiting_of_a_client) {
    return refuse_now(event, RefusalReason::TooMany);
  }
  Ask ask{.asked = event};
  ask.began = now_;
  ask.deadline = deadline_of(ask);
  asks_.push_back(ask);
}

Microseconds NodePolicy::deadline_of(const Ask& ask) const {
  if (right_of(ask) != Right::Guarantee) return ask.began + times_.request_within;
  return ask.began + times_.guarantee_within + time_to_move(times_, ask.asked.bytes);
}

void NodePolicy::on(const RequestCancelled& event) {
  const auto ask = std::find_if(asks_.begin(), asks_.end(), [&](const Ask& one) {
    return one.asked.client == event.client && one.asked.request == event.request &&
           !one.is_for_contexts;
  });
  if (ask == asks_.end()) return;
  turns_.note_outcome(group_of(*ask), ask->asked.place, TurnTable::Outcome::Failed, now_);
  asks_.erase(ask);
}

void NodePolicy::on(const LeaseReturned& event) {
  const Size returned = books_.remove_lease(event.client, event.place, event.bytes);
  reclaims_.note_given(event.client, event.place, returned);
}

void NodePolicy::on(const UseReported& event) {
  NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr || books_.find_place(event.place) == nullptr) return;
  // To itself, a client whose only thread waits for memory looks idle.
  const bool is_idle = event.is_idle && !has_asks(event.client);
  if (is_idle && !client->is_idle) client->idle_since = now_;
  client->is_idle = is_idle;
  ClientHolding& holding = client->at[event.place];
  holding.cache = std::min(event.cache, holding.leased);
  holding.cold = std::min(event.cold, holding.leased - holding.cache);
  const Size movable = holding.cache + holding.cold;
  const Size borrowed = client->borrowed(event.place);
  holding.unmovable = std::min(holding.unmovable, borrowed - std::min(borrowed, movable));
  holding.refuses_to_pause = false;
}

void NodePolicy::on(const ReclaimAnswered& event) {
  const Size returned = books_.remove_lease(event.client, event.place, event.returned);
  OpenReclaim* const open = reclaims_.find(event.client, event.revision);
  if (open == nullptr || open->place != event.place) {
    note_late_pause(event, returned);
    decisions_.emplace_back(AnswerStale{event.client, event.revision});
    return;
  }
  if (event.outcome == ReclaimOutcome::Deferred && !open->was_deferred) {
    open->was_deferred = true;
    defer(*open);
    open->bytes -= std::min(open->bytes, returned);
    return;
  }
  // Until its next report, assume that the client has nothing more to give at this step.
  const bool gave_all = event.outcome == ReclaimOutcome::Applied && returned >= open->bytes;
  const Size given = open->given_so_far + returned;
  NodeClient& client = *books_.find_client(event.client);
  ClientHolding& holding = client.at[open->place];
  const bool was_to_pause = open->step == ReclaimStep::Pause;
  const bool has_paused = was_to_pause && event.outcome == ReclaimOutcome::Applied;
  holding.is_away |= has_paused && given != 0;
  if (has_paused && !gave_all) {
    // What it kept may have been guaranteed to it by new terms in the meantime.
    holding.unmovable =
        std::min(client.unmovable(open->place, open->began) + open->bytes - returned,
                 client.borrowed(open->place));
    holding.unmovable_until = now_ + times_.unmovable_for;
  } else if (was_to_pause && !has_paused) {
    holding.before_pause = 0;
    holding.refuses_to_pause = client.borrowed(open->place) != 0;
  }
  if (!gave_all) {
    holding.cache = 0;
    if (open->step != ReclaimStep::Cache) holding.cold = 0;
  } else if (open->step == ReclaimStep::Cache) {
    holding.cache -= std::min(holding.cache, given);
  } else {
    const Size of_cache = std::min(holding.cache, given);
    holding.cache -= of_cache;
    holding.cold -= std::min(holding.cold, given - of_cache);
  }
  end_reclaim(event.revision,
              event.outcome == ReclaimOutcome::Applied ? ReclaimEnd::Applied : ReclaimEnd::Refused);
}

// A client that paused after the deadline is still away.
void NodePolicy::note_late_pause(const ReclaimAnswered& late, Size returned) {
  NodeClient* const client = books_.find_client(late.client);
  if (client == nullptr || late.outcome != ReclaimOutcome::Applied || returned == 0) return;
  ClientHolding& holding = client->at[late.place];
  holding.is_away |= holding.overdue_pause == late.revision;
}

// A client with memory on several devices pauses once for all of them.
void NodePolicy::defer(const OpenReclaim& deferred) {
  const auto ends_with_it = [id = deferred.client, step = deferred.step,
                             revision = deferred.revision](const OpenReclaim& one) {
    const bool is_same_pause = step == ReclaimStep::Pause && one.step == step && one.client == id;
    return is_same_pause || one.revision == revision;
  };
  Size bytes = 0;
  Microseconds work_ends = now_;
  for (const OpenReclaim& one : reclaims_.all()) {
    if (!ends_with_it(one)) continue;
    bytes += one.bytes;
    work_ends = std::max(work_ends, one.began + one.work_within);
  }
  const Microseconds deadline = work_ends + reclaim_time(deferred.step, bytes);
  for (OpenReclaim& one : reclaims_.all()) {
    if (ends_with_it(one)) one.deadline = std::max(one.deadline, deadline);
  }
}

// The group cannot be paused, so turns at its places are suspended for a while. A client can cause
// this only after being asked to pause, and only once its work has had the time it may take.
void NodePolicy::on(const WorkOutlastedTurn& event) {
  const NodeClient* const client = books_.find_client(event.client);
  if (client == nullptr) return;
  const OpenReclaim* const pause = reclaims_.pause_of(event.client);
  if (pause == nullptr) return;
  // Older clients know only the deadline of the whole pause.
  const Microseconds longest =
      std::min(pause->longest_work, reclaim_time(pause->step, pause->bytes));
  const Microseconds in_flight = now_ - pause->began;
  if (in_flight < longest || no_turns_before(client->group) > now_) return;
  const std::set<PlaceId> places = places_of(client->group);
  const Microseconds until = now_ + times_.without_turns;
  for (const PlaceId place : places) {
    books_.place(place).turns_suspended_until = until;
    decisions_.emplace_back(TurnsSuspended{place, event.client, in_flight, longest, until});
  }
  end_turns_at(places);
}

void NodePolicy::end_turns_at(const std::set<PlaceId>& places) {
  for (const GroupTurn& turn : std::vector<GroupTurn>{turns_.turns()}) {
    const bool is_off = std::any_of(turn.places.begin(), turn.places.end(),
                                    [&](PlaceId place) { return places.contains(place); });
    if (is_off) end_turn(turn.group);
  }
}

}  // namespace cuvmm::node
