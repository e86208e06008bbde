// SPDX-License-Identifier: Apache-2.0
// The broker's part in taking paused clients off their devices, and bringing them back.
#include <algorithm>

#include "base/log.hpp"
#include "base/log_rarely.hpp"
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject
using checkpoint::CheckpointEnd;

// The policy makes room for the sizes that a client reports, so they are capped at the most that
// contexts and modules can take.
std::map<PlaceId, Size> Broker::contexts_at(const ContextSizes& sizes) const {
  constexpr Size most = 4 * GiB;
  std::map<PlaceId, Size> contexts;
  for (const observe::NodeDevice& device : settings_.devices) {
    if (device.index >= sizes.size() || sizes[device.index] == 0) continue;
    contexts[device.index + 1] = std::min(sizes[device.index] * MiB, most);
  }
  return contexts;
}

// Ignores clients in other PID namespaces, since the driver needs a PID that is valid in this one.
bool Broker::on(ConnectionId id, Party& party, const PresenceReport& said, Microseconds now) {
  if (!party.is_client) return false;
  if (party.peer.process <= 0) return true;
  tell(PresenceReported{.client = id,
                        .is_paused = said.is_paused,
                        .has_held_calls = said.has_held_calls,
                        .is_off_devices = said.is_off_devices,
                        .contexts = contexts_at(said.contexts)},
       now);
  return true;
}

bool Broker::on(ConnectionId id, Party& party, const PresenceAnswer& said, Microseconds) {
  if (!party.is_client) return false;
  if (deep_pauses_ != nullptr) deep_pauses_->answered(id, said);
  return true;
}

void Broker::begin_deep_pause(ClientId client, DeepPauseWay way) {
  if (deep_pauses_ == nullptr) return;
  if (way == DeepPauseWay::Off) {
    CUVMM_LOG(Info, "no call of %s waits for the end of its pause: it leaves its devices",
              name_of(client).c_str());
  }
  deep_pauses_->begin(client, way, parties_[client].peer);
}

void Broker::deep_pause_ended(ClientId client, DeepPauseWay way, const HelperReport& report,
                              Microseconds now) {
  const std::string name = name_of(client);
  const Size left = checkpoint::sum_of(report.left);
  history_.note_deep_pause(client, way == DeepPauseWay::Off, report.is_done(), left, report.took_us,
                           report.why.data(), now);
  const double ms = static_cast<double>(report.took_us) / 1000;
  if (way == DeepPauseWay::Back) {
    if (report.is_done()) {
      CUVMM_LOG(Info, "%s is back on its devices, in %.1f ms", name.c_str(), ms);
    } else {
      CUVMM_LOG_RARELY(Warning, "%s cannot return to its devices yet: %s", name.c_str(),
                       report.why.data());
    }
    const auto how = report.is_done()                          ? ReturnEnded::How::Back
                     : report.end == CheckpointEnd::OffDevices ? ReturnEnded::How::Off
                                                               : ReturnEnded::How::Halfway;
    tell(ReturnEnded{client, how}, now);
    return;
  }
  auto how = LeaveEnded::How::Halfway;
  if (report.end == CheckpointEnd::OffDevices) {
    how = LeaveEnded::How::Off;
    CUVMM_LOG(Info, "%s is off its devices: %s of contexts and modules left in %.1f ms",
              name.c_str(), print_size(left).c_str(), ms);
  } else if (report.end == CheckpointEnd::OnDevices) {
    how = LeaveEnded::How::On;
    CUVMM_LOG(Warning, "%s stays paused on its devices: %s", name.c_str(), report.why.data());
  } else {
    CUVMM_LOG(Warning, "%s stands halfway off its devices, and is brought back: %s", name.c_str(),
              report.why.data());
  }
  tell(LeaveEnded{client, how, contexts_at({report.left.begin(), report.left.end()})}, now);
}

std::vector<ClientId> Broker::claimants(PlaceId place, ClientId without) const {
  std::vector<ClientId> found;
  for (const auto& [id, client] : policy_.books().clients()) {
    const bool claims = client.leased(place) != 0 || client.guarantee(place) != 0;
    if (claims && id != without) found.push_back(id);
  }
  return found;
}

void Broker::log_refusal(const ReturnRefused& refused) const {
  const NodeBooks& books = policy_.books();
  std::string claims;
  for (const ClientId id : claimants(refused.place, refused.client)) {
    const NodeClient& client = *books.find_client(id);
    claims += ", " + name_of(id) + " holds " + print_size(client.leased(refused.place)) + " (" +
              print_size(client.guarantee(refused.place)) + " guaranteed)";
  }
  const NodePlace& place = *books.find_place(refused.place);
  CUVMM_LOG(Warning,
            "%s stays off its devices, and its calls wait: its contexts need %s of the %s on %s; "
            "foreign memory takes %s%s; end a program, or lower a guarantee with `cuvmm set`",
            name_of(refused.client).c_str(), print_size(refused.bytes).c_str(),
            print_size(place.capacity).c_str(), place_name(refused.place).c_str(),
            print_size(place.foreign).c_str(), claims.c_str());
}

std::optional<PauseState> Broker::pause_of(ClientId client) const {
  const NodeClient* const known = policy_.books().find_client(client);
  if (known == nullptr || !known->deep.can_leave) return {};
  return PauseState{client, known->deep.is_paused, known->deep.stay};
}

}  // namespace cuvmm::daemon
