// SPDX-License-Identifier: Apache-2.0
#include "daemon/history.hpp"
#include "base/printable.hpp"

#include <algorithm>

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject
using observe::NodeEventKind;
using observe::NodeEventSample;

namespace {

constexpr std::size_t most_events = 200;

}  // namespace

void NodeHistory::note(const NodeEvent& event, const Decisions& decisions, Microseconds now) {
  std::visit([&](const auto& one) { before(one, now); }, event);
  for (const Decision& decision : decisions) {
    std::visit([&](const auto& one) { after(one, now); }, decision);
  }
  const auto* const came = std::get_if<ClientCame>(&event);
  const bool is_refused = std::any_of(decisions.begin(), decisions.end(), [](const auto& one) {
    return std::holds_alternative<TermsRefused>(one);
  });
  if (came != nullptr && is_refused) note_refused(came->client);
  const auto* const left = std::get_if<ClientLeft>(&event);
  if (left == nullptr || find(left->client) == nullptr) return;
  add(NodeEventKind::Left, left->client, now);
  clients_.erase(left->client);
  std::erase_if(waiting_, [&](const auto& one) { return one.first.first == left->client; });
  std::erase_if(reclaims_, [&](const auto& one) { return one.first.first == left->client; });
}

NodeHistory::Known* NodeHistory::find(ClientId client) {
  const auto found = clients_.find(client);
  return found == clients_.end() ? nullptr : &found->second;
}

std::string NodeHistory::label_of(ClientId client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? "" : found->second.label;
}

observe::ClientTally NodeHistory::tally_of(ClientId client, Microseconds now) const {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  observe::ClientTally tally = found->second.tally;
  if (found->second.turn_since != 0) tally.turns_us += now - found->second.turn_since;
  return tally;
}

Microseconds NodeHistory::waits(ClientId client, PlaceId place, Microseconds now) const {
  Microseconds longest = 0;
  for (auto one = waiting_.lower_bound({client, 0});
       one != waiting_.end() && one->first.first == client; ++one) {
    if (one->second.place == place) longest = std::max(longest, now - one->second.since);
  }
  return longest;
}

std::vector<NodeEventSample> NodeHistory::events(Microseconds now) const {
  std::vector<NodeEventSample> samples;
  for (const Happened& one : events_) {
    samples.push_back(one.sample);
    samples.back().ago_us = now - one.at;
  }
  return samples;
}

NodeEventSample& NodeHistory::add(NodeEventKind kind, ClientId client, Microseconds now) {
  Happened& one = events_.emplace_back();
  if (events_.size() > most_events) events_.pop_front();
  one.client = client;
  one.at = now;
  one.sample.number = ++last_number_;
  one.sample.kind = kind;
  if (const Known* const known = find(client)) {
    one.sample.client = known->label;
    one.sample.user = known->user;
  }
  return one.sample;
}

void NodeHistory::before(const ClientCame& event, Microseconds now) {
  Known known{.label = printable(names_.name(event.client)), .user = names_.user(event.client)};
  const auto is_taken = [&](const std::string& label) {
    return std::any_of(clients_.begin(), clients_.end(),
                       [&](const auto& one) { return one.second.label == label; });
  };
  // Another client may have chosen the name that this makes, or one that prints like it.
  while (is_taken(known.label)) known.label += "#" + std::to_string(event.client);
  clients_.insert_or_assign(event.client, std::move(known));
  add(NodeEventKind::Joined, event.client, now);
}

// The client never joined, so it will not leave either.
void NodeHistory::note_refused(ClientId client) {
  const auto joined = std::find_if(events_.rbegin(), events_.rend(), [&](const Happened& one) {
    return one.sample.kind == NodeEventKind::Joined && one.client == client;
  });
  if (joined != events_.rend()) {
    joined->sample.outcome = "refused";
    joined->sample.cause = "guarantees do not fit";
  }
  clients_.erase(client);
}

void NodeHistory::before(const LeaseRequested& event, Microseconds now) {
  if (event.at_once) return;
  waiting_[{event.client, event.request}] = {event.place, event.bytes, now};
}

void NodeHistory::note_wait(ClientId client, RequestId request, Microseconds now) {
  const auto found = waiting_.find({client, request});
  if (found == waiting_.end()) return;
  if (Known* const known = find(client)) {
    auto& waits = known->tally.lease_waits;
    waits.try_emplace(names_.place(found->second.place), observe::lease_wait_bounds_us)
        .first->second.note(now - found->second.since);
  }
  waiting_.erase(found);
}

void NodeHistory::before(const RequestCancelled& event, Microseconds now) {
  const auto found = waiting_.find({event.client, event.request});
  if (found == waiting_.end()) return;
  NodeEventSample& sample = add(NodeEventKind::Refused, event.client, now);
  sample.device = names_.place(found->second.place);
  sample.asked = found->second.bytes;
  sample.took_us = now - found->second.since;
  sample.cause = "timed out";
  note_wait(event.client, event.request, now);
}

void NodeHistory::after(const LeaseGranted& decision, Microseconds now) {
  note_wait(decision.client, decision.request, now);
}

// After NotAtOnce, the client asks again with a request that waits.
void NodeHistory::after(const LeaseRefused& decision, Microseconds now) {
  const auto waited = waiting_.find({decision.client, decision.request});
  const Microseconds since = waited == waiting_.end() ? now : waited->second.since;
  note_wait(decision.client, decision.request, now);
  if (decision.why == RefusalReason::NotAtOnce) return;
  const std::string place = names_.place(decision.place);
  NodeEventSample refused{.kind = NodeEventKind::Refused,
                          .client = label_of(decision.client),
                          .device = place,
                          .cause = observe::name_of(decision.why),
                          .asked = decision.bytes,
                          .took_us = now - since};
  if (!note_again(decision.client, refused, now)) {
    NodeEventSample& sample = add(NodeEventKind::Refused, decision.client, now);
    refused.number = sample.number;
    refused.user = sample.user;
    sample = std::move(refused);
  }
  if (Known* const known = find(decision.client)) ++known->tally.refusals[{place, decision.why}];
}

// Merge repeated refusals, so that a client that keeps asking does not crowd out other events.
bool NodeHistory::note_again(ClientId client, const NodeEventSample& refused, Microseconds now) {
  constexpr std::size_t looked_at = 8;
  const std::size_t count = std::min(events_.size(), looked_at);
  for (auto one = events_.rbegin(); one != events_.rbegin() + static_cast<long>(count); ++one) {
    NodeEventSample& before = one->sample;
    if (before.kind != refused.kind || one->client != client || before.device != refused.device ||
        before.cause != refused.cause || before.asked != refused.asked) {
      continue;
    }
    ++before.times;
    before.took_us = refused.took_us;
    one->at = now;
    return true;
  }
  return false;
}

NodeEventSample* NodeHistory::find_shown(std::uint64_t event) {
  const std::uint64_t oldest = last_number_ - events_.size() + 1;
  return event < oldest ? nullptr : &events_[event - oldest].sample;
}

void NodeHistory::after(const ReclaimRequested& decision, Microseconds now) {
  const std::string place = names_.place(decision.place);
  NodeEventSample& sample = add(NodeEventKind::Reclaimed, decision.client, now);
  sample.device = place;
  sample.cause = observe::name_of(decision.step);
  sample.asked = decision.bytes;
  if (decision.asker) sample.other = label_of(*decision.asker);
  // Once it is asked again, it no longer answers what it has missed.
  std::erase_if(reclaims_, [&](const auto& one) {
    const auto& [key, reclaim] = one;
    return key.first == decision.client && reclaim.is_overdue && reclaim.place == place;
  });
  reclaims_[{decision.client, decision.revision}] = {
      .event = sample.number, .place = place, .step = decision.step, .began = now};
}

// A pause in progress returns memory as it releases it.
void NodeHistory::before(const LeaseReturned& event, Microseconds) {
  Known* const known = find(event.client);
  if (known == nullptr) return;
  const std::string place = names_.place(event.place);
  const auto open = std::find_if(reclaims_.begin(), reclaims_.end(), [&](const auto& one) {
    const auto& [key, reclaim] = one;
    return key.first == event.client && reclaim.step == ReclaimStep::Pause && !reclaim.is_overdue &&
           reclaim.place == place;
  });
  if (open != reclaims_.end()) add_returned(open->second, *known, event.bytes);
}

void NodeHistory::before(const ReclaimAnswered& event, Microseconds) {
  const auto found = reclaims_.find({event.client, event.revision});
  Known* const known = find(event.client);
  if (found == reclaims_.end() || known == nullptr) return;
  add_returned(found->second, *known, event.returned);
  if (found->second.is_overdue) reclaims_.erase(found);
}

void NodeHistory::add_returned(const Reclaim& reclaim, Known& by, Size bytes) {
  if (NodeEventSample* const shown = find_shown(reclaim.event)) shown->bytes += bytes;
  by.tally.reclaims[{reclaim.place, reclaim.step}].bytes += bytes;
}

void NodeHistory::after(const ReclaimEnded& decision, Microseconds now) {
  const auto found = reclaims_.find({decision.client, decision.revision});
  Known* const known = find(decision.client);
  if (found == reclaims_.end() || known == nullptr) return;
  Reclaim& reclaim = found->second;
  if (NodeEventSample* const shown = find_shown(reclaim.event)) {
    shown->outcome = observe::name_of(decision.how);
    shown->took_us = now - reclaim.began;
  }
  ++known->tally.reclaims[{reclaim.place, reclaim.step}].ended[decision.how];
  reclaim.is_overdue = decision.how == ReclaimEnd::Expired;
  if (!reclaim.is_overdue) reclaims_.erase(found);
}

void NodeHistory::after(const TurnStarted& decision, Microseconds now) {
  add(NodeEventKind::TurnBegan, decision.client, now).took_us = decision.quantum;
  if (Known* const known = find(decision.client)) {
    ++known->tally.turns;
    known->turn_since = now;
  }
}

void NodeHistory::after(const TurnEnded& decision, Microseconds now) {
  NodeEventSample& sample = add(NodeEventKind::TurnEnded, decision.client, now);
  Known* const known = find(decision.client);
  if (known == nullptr || known->turn_since == 0) return;
  sample.took_us = now - known->turn_since;
  known->tally.turns_us += sample.took_us;
  known->turn_since = 0;
}

void NodeHistory::after(const TurnsSuspended& decision, Microseconds now) {
  NodeEventSample& sample = add(NodeEventKind::TurnsOff, decision.because_of, now);
  sample.device = names_.place(decision.place);
  sample.cause = "its work outlasted a turn";
  sample.took_us = decision.until - now;
}

void NodeHistory::note_deep_pause(ClientId client, bool is_departure, bool is_done, Size bytes,
                                  Microseconds took, const std::string& why, Microseconds now) {
  NodeEventSample& sample = add(
      is_departure ? NodeEventKind::LeftDevices : NodeEventKind::ReturnedToDevices, client, now);
  sample.outcome = is_done ? "done" : "failed";
  sample.cause = why;
  sample.bytes = bytes;
  sample.took_us = took;
  if (Known* const known = find(client)) {
    auto& tally = is_departure ? known->tally.departures : known->tally.returns;
    ++(is_done ? tally.done : tally.failed);
  }
}

}  // namespace cuvmm::daemon
