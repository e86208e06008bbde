// SPDX-License-Identifier: Apache-2.0
// The broker's part in taking paused clients off their devices, and bringing them back.
#include <algorithm>

#include "base/log.hpp"
#include "base/log_rarely.hpp"
#include "daemon/broker.hpp"

namespace cuvmm::daemon {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject
using checkpoint::CheckpointEnd;

// Room is made for what a client says that it left, so it is believed only as far as contexts and
// modules can be large.
std::map<PlaceId, Size> Broker::contexts_at(const ContextSizes& sizes) const {
  constexpr Size most = 4 * GiB;
  std::map<PlaceId, Size> contexts;
  for (const observe::NodeDevice& device : settings_.devices) {
    if (device.index >= sizes.size() || sizes[device.index] == 0) continue;
    contexts[device.index + 1] = std::min(sizes[device.index] * MiB, most);
  }
  return contexts;
}

// The driver can only be told the number of a process that this one sees.
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

void Broker::show_pause(ConnectionId id, ClientId client) const {
  const NodeClient* const known = policy_.books().find_client(client);
  if (known == nullptr || !known->deep.can_leave) return;
  send_(id, encode_observed(PauseState{client, known->deep.is_paused, known->deep.stay}));
}

}  // namespace cuvmm::daemon
