// SPDX-License-Identifier: Apache-2.0
#include "histories.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::test {
namespace {

constexpr Size most_clients = 10;

PolicyTimes short_times() {
  PolicyTimes times;
  times.request_within = 120'000'000;
  times.shortest_quantum = 20'000;
  times.longest_quantum = 500'000;
  times.stays = 300'000;
  times.without_turns = 1'000'000;
  times.shortest_return_rest = 50'000;
  times.longest_return_rest = 400'000;
  return times;
}

}  // namespace

NodeHistory::NodeHistory(std::uint64_t seed, Manners manners)
    : manners_(manners), times_(short_times()), policy_(times_), random_(seed) {
  for (PlaceId place = 0; place < places; ++place) {
    const auto kind = place + 1 == places ? PlaceKind::Host : PlaceKind::Device;
    tell(PlaceConfigured{place, kind, capacity});
  }
}

void NodeHistory::run(std::uint64_t events) {
  while (events_ < events && !::testing::Test::HasFailure()) {
    answer_what_is_due();
    end_helpers_that_are_due();
    do_something();
    let_time_pass();
  }
}

void NodeHistory::end() {
  while (!clients_.empty()) {
    const ClientId leaving = clients_.begin()->first;
    remove(clients_.begin());
    tell(ClientLeft{leaving});
  }
  for (const auto& [place, facts] : policy_.books().places()) {
    EXPECT_EQ(facts.leased, 0u);
    EXPECT_EQ(facts.coming_back, 0u);
    EXPECT_EQ(policy_.books().guaranteed(place), 0u);
  }
  EXPECT_TRUE(policy_.books().clients().empty());
  EXPECT_TRUE(policy_.open_reclaims().all().empty());
  EXPECT_TRUE(policy_.turns().turns().empty());
  EXPECT_EQ(policy_.waiting_requests(), 0u);
  EXPECT_FALSE(policy_.next_wake().has_value());
  EXPECT_TRUE(open_.empty());
}

std::map<ClientId, NodeHistory::KnownClient>::iterator NodeHistory::any_client() {
  return std::next(clients_.begin(), static_cast<std::ptrdiff_t>(chance(clients_.size())));
}

void NodeHistory::tell(const NodeEvent& event) {
  ++events_;
  const Decisions decisions = policy_.handle(event, now_);
  for (const Decision& decision : decisions) {
    std::visit([this](const auto& one) { take_note(one); }, decision);
  }
  check();
}

void NodeHistory::do_something() {
  if (clients_.size() < 2 || (clients_.size() < most_clients && one_in(30))) return come();
  if (one_in(100)) {
    const auto client = any_client();
    const ClientId id = client->first;
    remove(client);
    return tell(ClientLeft{id});
  }
  if (one_in(60)) return change_terms();
  if (one_in(200)) return join();
  if (one_in(6)) return report_pause();
  if (manners_ == Manners::Any && one_in(5)) return lie();
  switch (chance(4)) {
    case 0:
    case 1:
      return ask();
    case 2:
      return report();
    default:
      return give_back();
  }
}

void NodeHistory::come() {
  KnownClient fresh;
  for (PlaceId place = 0; place < places; ++place) {
    if (one_in(2)) fresh.terms.shares[place].guarantee = chance(300);
    if (one_in(4)) {
      MemoryShare& share = fresh.terms.shares[place];
      share.limit = share.guarantee + chance(500);
    }
  }
  fresh.terms.weight = static_cast<std::uint32_t>(1 + chance(4));
  fresh.terms.priority = static_cast<int>(chance(5)) - 2;
  if (one_in(3)) fresh.terms.group = one_in(2) ? "red" : "blue";
  if (one_in(2)) fresh.terms.deep_pause_after = chance(100'000);
  std::map<PlaceId, Size> held;
  if (one_in(4)) {
    const PlaceId place = static_cast<PlaceId>(chance(places - 1));  // a device
    held[place] = std::min(chance(200), policy_.books().free(place));
    foreign_[place] -=
        std::min(foreign_[place], held[place]);  // it was seen before the client came
  }
  const ClientId id = ++last_client_;
  fresh.leased = held;
  clients_[id] = fresh;
  tell(ClientCame{id, fresh.terms, held});
}

void NodeHistory::change_terms() {
  const auto client = any_client();
  ClientTerms changed = client->second.terms;
  MemoryShare& share = changed.shares[any_place()];
  share.guarantee = chance(300);
  share.limit = one_in(2) ? node::unlimited : share.guarantee + chance(600);
  tell(TermsChanged{client->first, changed});
  KnownClient& known = client->second;
  known.terms = policy_.books().find_client(client->first)->terms;
  // A request that new terms put beyond the guarantee has a plain request's deadline from now on.
  for (auto& [number, waiting] : known.waiting) {
    const Size guarantee = known.terms.share_at(waiting.place).guarantee;
    if (known.leased[waiting.place] + waiting.bytes <= guarantee) continue;
    if (std::exchange(waiting.is_guaranteed, false)) waiting.since = now_;
  }
}

// An obedient client waits for an answer before it asks again.
void NodeHistory::ask() {
  const auto client = any_client();
  KnownClient& known = client->second;
  if (manners_ == Manners::Obedient && !known.waiting.empty()) return;
  const PlaceId place = any_place();
  const Size guarantee = known.terms.share_at(place).guarantee;
  const Size leased = known.leased[place];
  const Size left = guarantee > leased ? guarantee - leased : 0;
  const Size bytes = left != 0 && one_in(2) ? 1 + chance(left) : 1 + chance(600);
  const bool in_parts = one_in(3);
  known.waiting[++last_request_] = {place, bytes, bytes <= left, in_parts, now_};
  known.quiet_since = now_;
  tell(LeaseRequested{client->first, last_request_, place, bytes, false, in_parts});
}

void NodeHistory::report() {
  const auto client = any_client();
  KnownClient& known = client->second;
  const PlaceId place = any_place();
  known.cache[place] = chance(known.leased[place] + 1);
  known.cold[place] = chance(known.leased[place] - known.cache[place] + 1);
  // A client that waits in a call is not idle.
  tell(UseReported{client->first, place, known.cache[place], known.cold[place],
                   known.waiting.empty() && one_in(2)});
}

void NodeHistory::give_back() {
  const auto client = any_client();
  const PlaceId place = any_place();
  Size& leased = client->second.leased[place];
  const Size bytes = one_in(4) ? leased : chance(leased + 1);
  leased -= bytes;
  tell(LeaseReturned{client->first, place, bytes});
}

void NodeHistory::answer_what_is_due() {
  for (std::size_t i = 0; i < owed_.size();) {
    if (owed_[i].at > now_) {
      ++i;
      continue;
    }
    const Deferred owed = owed_[i];
    owed_.erase(owed_.begin() + static_cast<std::ptrdiff_t>(i));
    answer(owed);
    i = 0;  // the answer may have added or removed others
  }
}

void NodeHistory::answer(const Deferred& owed) {
  const auto client = clients_.find(owed.request.client);
  if (client == clients_.end()) return;
  KnownClient& known = client->second;
  const PlaceId place = owed.request.place;
  Size& leased = known.leased[place];
  const Size guarantee = known.terms.share_at(place).guarantee;
  const Size borrowed = leased > guarantee ? leased - guarantee : 0;
  Size has = known.cache[place];
  if (owed.request.step == ReclaimStep::Cold) has += known.cold[place];
  if (owed.request.step == ReclaimStep::Pause) has = one_in(2) ? leased : borrowed;
  has = std::min(has, leased);
  Size returned = owed.request.step == ReclaimStep::Pause ? has : std::min(has, owed.request.bytes);
  ReclaimOutcome outcome = ReclaimOutcome::Applied;
  if (manners_ == Manners::Any && one_in(3)) {
    if (one_in(3)) return;  // never answers
    outcome = one_in(2) ? ReclaimOutcome::Refused : ReclaimOutcome::Deferred;
    if (one_in(2)) tell(WorkOutlastedTurn{owed.request.client});
    returned = chance(returned + 1);
    if (outcome == ReclaimOutcome::Deferred) {
      owed_.push_back({owed.request, now_ + chance(2 * times_.reclaim_within), true});
    }
  }
  if (owed.request.step == ReclaimStep::Pause && one_in(2)) {
    returned -= return_part(owed.request.client, place, returned);
  }
  leased -= returned;
  known.cache[place] = std::min(known.cache[place], leased);
  known.cold[place] = std::min(known.cold[place], leased - known.cache[place]);
  tell(ReclaimAnswered{owed.request.client, owed.request.revision, place, outcome, returned});
}

// Of a pause that is still in progress.
Size NodeHistory::return_part(ClientId client, PlaceId place, Size most) {
  const Size part = chance(most + 1);
  clients_[client].leased[place] -= part;
  tell(LeaseReturned{client, place, part});
  return part;
}

void NodeHistory::let_time_pass() {
  Microseconds until = now_ + (one_in(3) ? chance(20'000) : 0);
  if (one_in(200)) until += chance(times_.without_turns);
  // Events that happen by themselves are never late.
  while (now_ < until) {
    Microseconds next = until;
    for (const Deferred& owed : owed_) next = std::min(next, std::max(owed.at, now_));
    for (const HelperAtWork& one : helpers_) next = std::min(next, std::max(one.ends_at, now_));
    const auto wake = policy_.next_wake();
    if (wake) next = std::min(next, std::max(*wake, now_));
    now_ = next;
    if (wake && *wake <= now_) tell(TimePassed{});
    answer_what_is_due();
    end_helpers_that_are_due();
    if (::testing::Test::HasFailure()) return;
  }
}

void NodeHistory::take_note(const LeaseGranted& granted) {
  const auto client = clients_.find(granted.client);
  ASSERT_NE(client, clients_.end());
  const auto waiting = client->second.waiting.find(granted.request);
  ASSERT_NE(waiting, client->second.waiting.end()) << "granted twice, or never asked for";
  EXPECT_EQ(granted.bytes, waiting->second.bytes);
  ++grants_;
  guaranteed_grants_ += waiting->second.is_guaranteed ? 1 : 0;
  client->second.waiting.erase(waiting);
  client->second.quiet_since = now_;
  check_granted(granted.client, granted.place, granted.bytes);
  Size& before_pause = client->second.before_pause[granted.place];
  if (client->second.leased[granted.place] >= before_pause) before_pause = 0;
}

void NodeHistory::take_note(const PartGranted& part) {
  const auto client = clients_.find(part.client);
  ASSERT_NE(client, clients_.end());
  const auto waiting = client->second.waiting.find(part.request);
  ASSERT_NE(waiting, client->second.waiting.end());
  EXPECT_TRUE(waiting->second.in_parts);
  EXPECT_LT(part.bytes, waiting->second.bytes) << "that is all of it";
  EXPECT_NE(part.bytes, 0u);
  ++parts_;
  waiting->second.bytes -= part.bytes;
  check_granted(part.client, part.place, part.bytes);
}

void NodeHistory::check_granted(ClientId client, PlaceId place, Size bytes) {
  Size& leased = clients_[client].leased[place];
  leased += bytes;
  const Size limit = policy_.books().find_client(client)->terms.share_at(place).limit;
  EXPECT_LE(leased, std::max(limit, clients_[client].before_pause[place]));
  const NodePlace& facts = *policy_.books().find_place(place);
  Size sum = foreign_[place] + facts.coming_back;
  for (auto& [id, other] : clients_) sum += other.leased[place];
  EXPECT_LE(sum, bytes == 0 ? node::unlimited : capacity) << "more than there is";
}

void NodeHistory::take_note(const LeaseRefused& refused) {
  const auto client = clients_.find(refused.client);
  ASSERT_NE(client, clients_.end());
  const auto waiting = client->second.waiting.find(refused.request);
  ASSERT_NE(waiting, client->second.waiting.end());
  const bool was_guaranteed = waiting->second.is_guaranteed;
  client->second.waiting.erase(waiting);
  client->second.quiet_since = now_;
  if (manners_ != Manners::Obedient) return;
  const RefusalReason why = refused.why;
  EXPECT_TRUE(why == RefusalReason::BeyondLimit || why == RefusalReason::BeyondCapacity)
      << "for reason " << static_cast<int>(why) << " although all obey";
  // The terms may have changed since the request.
  const Size guarantee = policy_.books().find_client(refused.client)->guarantee(refused.place);
  const bool is_guaranteed = client->second.leased[refused.place] + refused.bytes <= guarantee;
  bool fellow_has_it = false;
  for (auto& [id, other] : clients_) {
    const bool is_fellow = id != refused.client && group_of(id).contains(refused.client);
    fellow_has_it |= is_fellow && other.leased[refused.place] != 0;
  }
  EXPECT_FALSE(was_guaranteed && is_guaranteed && !fellow_has_it) << "a guarantee was not held";
}

void NodeHistory::take_note(const TermsRefused& refused) {
  EXPECT_GT(refused.guaranteed, refused.capacity);
  if (policy_.books().find_client(refused.client) != nullptr) return;
  const auto client = clients_.find(refused.client);
  if (client != clients_.end()) remove(client);
}

void NodeHistory::take_note(const ReclaimRequested& request) {
  ++reclaims_;
  EXPECT_GT(request.revision, last_revision_);
  last_revision_ = request.revision;
  open_[request.revision] = request;
  EXPECT_LE(request.deadline, now_ + times_.reclaim_within);
  const auto client = clients_.find(request.client);
  ASSERT_NE(client, clients_.end());
  const NodeClient& known = *policy_.books().find_client(request.client);
  const Size leased = client->second.leased[request.place];
  Size& before_pause = client->second.before_pause[request.place];
  if (request.step == ReclaimStep::Pause) before_pause = std::max(before_pause, leased);
  EXPECT_LE(request.bytes, leased);
  const bool is_beyond_limit = leased > known.terms.share_at(request.place).limit;
  EXPECT_TRUE(is_beyond_limit ||
              request.bytes + std::min(leased, known.guarantee(request.place)) <= leased)
      << "guaranteed memory is asked for";
  if (manners_ == Manners::Obedient && request.step != ReclaimStep::Cache && !is_beyond_limit &&
      known.stays_until > now_) {
    bool is_for_a_guarantee = false;
    for (const auto& [id, other] : clients_) {
      for (const auto& [number, waiting] : other.waiting) {
        is_for_a_guarantee |= waiting.is_guaranteed;
        const auto leased_there = other.leased.find(waiting.place);
        const Size there = leased_there == other.leased.end() ? 0 : leased_there->second;
        is_for_a_guarantee |=
            there + waiting.bytes <= policy_.books().find_client(id)->guarantee(waiting.place);
      }
    }
    EXPECT_TRUE(is_for_a_guarantee) << "it was to stay for a while";
  }
  const Microseconds in = manners_ == Manners::Obedient ? chance(times_.reclaim_within / 2)
                                                        : chance(times_.reclaim_within * 2);
  owed_.push_back({request, now_ + in, false});
}

void NodeHistory::take_note(const ReclaimEnded& ended) {
  EXPECT_EQ(open_.erase(ended.revision), 1u) << "a revision ended twice";
  EXPECT_TRUE(manners_ == Manners::Any || ended.how != ReclaimEnd::Expired);
  std::erase_if(owed_, [&](const Deferred& owed) {
    return owed.request.revision == ended.revision && manners_ == Manners::Obedient;
  });
}

void NodeHistory::take_note(const TurnStarted& started) {
  const auto client = clients_.find(started.client);
  ASSERT_NE(client, clients_.end());
  EXPECT_FALSE(client->second.has_turn);
  EXPECT_GE(started.quantum, times_.shortest_quantum);
  EXPECT_LE(started.quantum, times_.longest_quantum);
  client->second.has_turn = true;
  ++turns_;
}

void NodeHistory::take_note(const TurnEnded& ended) {
  const auto client = clients_.find(ended.client);
  ASSERT_NE(client, clients_.end());
  EXPECT_TRUE(client->second.has_turn);
  client->second.has_turn = false;
}

void NodeHistory::remove(std::map<ClientId, KnownClient>::iterator client) {
  for (const ClientId other : client->second.joined) clients_[other].joined.erase(client->first);
  clients_.erase(client);
}

void NodeHistory::check() {
  std::set<PlaceId> taken;
  for (const GroupTurn& turn : policy_.turns().turns()) {
    for (const PlaceId place : turn.places) {
      EXPECT_TRUE(taken.insert(place).second) << "two have one place to themselves";
    }
  }
  EXPECT_EQ(policy_.open_reclaims().all().size(), open_.size());
  for (const OpenReclaim& open : policy_.open_reclaims().all()) EXPECT_GT(open.deadline, now_);
  std::size_t waiting_requests = 0;
  for (auto& [id, client] : clients_) {
    const NodeClient* const known = policy_.books().find_client(id);
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(client.has_turn, policy_.turns().has_turn(known->group)) << "not with its group";
    for (PlaceId place = 0; place < places; ++place) {
      EXPECT_EQ(known->leased(place), client.leased[place]) << "the books are wrong";
    }
    for (const auto& [number, waiting] : client.waiting) {
      const Microseconds most =
          waiting.is_guaranteed ? times_.guarantee_within : times_.request_within;
      EXPECT_LT(now_, waiting.since + most) << "it waits too long";
      ++waiting_requests;
    }
  }
  EXPECT_EQ(policy_.waiting_requests(), waiting_requests);
  check_groups();
  check_contexts();
}

}  // namespace cuvmm::test
