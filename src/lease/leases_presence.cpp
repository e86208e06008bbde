// SPDX-License-Identifier: Apache-2.0
// A paused program that the service takes off its devices, and brings back.
#include <unistd.h>

#include <algorithm>

#include "base/log_rarely.hpp"
#include "lease/say.hpp"

namespace cuvmm::lease {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

share::ControlWhat what_of(PresenceStep step) {
  switch (step) {
    case PresenceStep::Leave:
      return share::ControlWhat::LeaveDevices;
    case PresenceStep::HasLeft:
      return share::ControlWhat::HasLeft;
    case PresenceStep::HasReturned:
      return share::ControlWhat::HasReturned;
    case PresenceStep::Look:
      break;
  }
  return share::ControlWhat::State;
}

PresenceNow now_of(share::Presence presence) {
  switch (presence) {
    case share::Presence::Leaving:
      return PresenceNow::Leaving;
    case share::Presence::OffDevices:
      return PresenceNow::OffDevices;
    case share::Presence::OnDevices:
      break;
  }
  return PresenceNow::OnDevices;
}

ContextSizes sizes_of(const share::LeftMemory& left) {
  return {left.begin(), left.end()};
}

}  // namespace

void Leases::agree(const PresenceDemand& demand) {
  share::ControlRequest request;
  request.what = what_of(demand.step);
  std::copy_n(demand.contexts.begin(), std::min(demand.contexts.size(), request.left.size()),
              request.left.begin());
  const share::ControlAnswer said = tenant_.agree(request);
  report_presence();
  const Holding holding{lock_};
  send(PresenceAnswer{.number = demand.number,
                      .is_done = said.outcome == share::ControlOutcome::Done,
                      .now = now_of(said.presence),
                      .contexts = sizes_of(said.left),
                      .why_not = said.text.data()});
}

void Leases::report_presence() {
  PresenceReport now;
  now.is_paused = paused_at_ != 0 && tenant_.is_paused();
  now.has_held_calls = now.is_paused && tenant_.has_held_calls();
  now.is_off_devices = tenant_.is_off_devices();
  if (now.is_off_devices) {
    now.contexts = sizes_of(tenant_.agree({.what = share::ControlWhat::State}).left);
  }
  const Holding holding{lock_};
  if (standing_ != Standing::Connected || presence_told_ == now) return;
  presence_told_ = now;
  send(now);
}

void Leases::say_who_can_bring_back() {
  CUVMM_LOG_RARELY(Warning,
                   "the program is off its devices, and the node service, which would bring it "
                   "back, is gone: start cuvmmd, or run `cuvmm resume %d`",
                   ::getpid());
}

}  // namespace cuvmm::lease
