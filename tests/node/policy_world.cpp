// SPDX-License-Identifier: Apache-2.0
#include "policy_world.hpp"

namespace cuvmm::test {

ClientTerms terms(Size guarantee, int priority, const std::string& group) {
  ClientTerms made;
  made.shares[card].guarantee = guarantee * GiB;
  made.priority = priority;
  made.group = group;
  return made;
}

PolicyWorld::PolicyWorld(const PolicyTimes& times) : policy(times) {
  tell(PlaceConfigured{card, PlaceKind::Device, 100 * GiB});
  tell(PlaceConfigured{other_card, PlaceKind::Device, 100 * GiB});
  tell(PlaceConfigured{host, PlaceKind::Host, 200 * GiB});
}

const Decisions& PolicyWorld::tell(const NodeEvent& event) {
  last_ = policy.handle(event, now_);
  all_.insert(all_.end(), last_.begin(), last_.end());
  return last_;
}

ClientId PolicyWorld::come(const ClientTerms& with, const std::map<PlaceId, Size>& held) {
  tell(ClientCame{++last_client_, with, held});
  return last_client_;
}

RequestId PolicyWorld::ask(ClientId client, Size gib, PlaceId place) {
  tell(LeaseRequested{client, ++last_request_, place, gib * GiB});
  return last_request_;
}

bool PolicyWorld::lease(ClientId client, Size gib, PlaceId place) {
  return is_granted(ask(client, gib, place));
}

void PolicyWorld::report(ClientId client, Size cache_gib, Size cold_gib, bool is_idle,
                         PlaceId place) {
  tell(UseReported{client, place, cache_gib * GiB, cold_gib * GiB, is_idle});
}

void PolicyWorld::give_back(ClientId client, Size gib, PlaceId place) {
  tell(LeaseReturned{client, place, gib * GiB});
}

void PolicyWorld::apply(const ReclaimRequested& request) {
  tell(ReclaimAnswered{request.client, request.revision, request.place, ReclaimOutcome::Applied,
                       request.bytes});
}

void PolicyWorld::answer(const ReclaimRequested& request, ReclaimOutcome outcome,
                         Size returned_gib) {
  tell(ReclaimAnswered{request.client, request.revision, request.place, outcome,
                       returned_gib * GiB});
}

bool PolicyWorld::is_granted(RequestId request) const {
  for (const LeaseGranted& granted : all<LeaseGranted>()) {
    if (granted.request == request) return true;
  }
  return false;
}

const LeaseRefused* PolicyWorld::refusal(RequestId request) const {
  for (const Decision& decision : all_) {
    const auto* refused = std::get_if<LeaseRefused>(&decision);
    if (refused != nullptr && refused->request == request) return refused;
  }
  return nullptr;
}

std::vector<ReclaimRequested> PolicyWorld::requests(ClientId client) const {
  std::vector<ReclaimRequested> open;
  for (const ReclaimRequested& asked : all<ReclaimRequested>()) {
    const auto& now_open = policy.open_reclaims().all();
    const bool is_open = std::any_of(now_open.begin(), now_open.end(), [&](const OpenReclaim& one) {
      return one.revision == asked.revision;
    });
    if (asked.client == client && is_open) open.push_back(asked);
  }
  return open;
}

ReclaimRequested PolicyWorld::request(ClientId client) const {
  const auto open = requests(client);
  EXPECT_EQ(open.size(), 1u);
  return open.empty() ? ReclaimRequested{} : open.front();
}

}  // namespace cuvmm::test
