// SPDX-License-Identifier: Apache-2.0
// The broker's part in tracking memory and devices that non-clients use.
#include "base/log_rarely.hpp"
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr Microseconds without_turns_under_mps = 10'000'000;  // since they were last seen

}  // namespace

void Broker::will_see_use() {
  leased_before_.clear();
  for (const auto& [id, party] : parties_) {
    const NodeClient* const client = policy_.books().find_client(id);
    if (client == nullptr) continue;
    LeasedBefore& before = leased_before_[id];
    before.process = party.peer.process;
    for (const auto& [place, facts] : policy_.books().places()) {
      before.leased[place] = client->leased(place);
    }
  }
}

void Broker::saw_use(std::uint32_t device, const observe::DeviceUse& use, Microseconds now) {
  const PlaceId place = device + 1;
  if (use.has_mps_clients) {
    CUVMM_LOG_RARELY(Warning, "programs on %s use MPS: no turns there", place_name(place).c_str());
    carry_out_all(policy_.withhold_turns(place, now + without_turns_under_mps, now), now);
  }
  // A client may not have allocated all that it has leased.
  const auto used_of = [&use](pid_t process, Size leased) {
    if (use.processes.empty()) return leased;
    const auto known = use.processes.find(process);
    return known != use.processes.end() ? std::min(leased, known->second) : leased;
  };
  Size of_clients = 0;
  for (const auto& [id, party] : parties_) {
    const NodeClient* const client = policy_.books().find_client(id);
    if (client == nullptr) continue;
    Size leased = client->leased(place);
    const auto before = leased_before_.find(id);
    if (before != leased_before_.end()) leased = std::max(leased, before->second.leased[place]);
    of_clients += used_of(party.peer.process, leased);
  }
  for (auto& [id, before] : leased_before_) {
    if (!parties_.contains(id)) of_clients += used_of(before.process, before.leased[place]);
  }
  const NodePlace* const known = policy_.books().find_place(place);
  if (known == nullptr) return;
  // What the capacity leaves of the device is for others.
  const Size for_others = use.memory - std::min(use.memory, known->capacity);
  const Size not_foreign = saturating_sum(of_clients, for_others);
  const Size foreign = use.used - std::min(use.used, not_foreign);
  if (known->foreign != std::min(foreign, known->capacity)) {
    tell(ForeignUseSeen{place, foreign}, now);
  }
}

}  // namespace cuvmm::daemon
