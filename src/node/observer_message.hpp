// SPDX-License-Identifier: Apache-2.0
// The messages between the service and observers, which show the node's state or change a client's
// terms. The packets have the format of node/message.hpp; kinds are numbered from 64. There is no
// greeting: every request names the protocol version.
#pragma once

#include <optional>

#include "node/message.hpp"

namespace cuvmm::node {

inline constexpr std::uint16_t first_observer_kind = 64;
inline constexpr std::uint16_t observer_protocol = 1;

// Asks for the whole state, once. Answered by PlaceState, ClientState, HoldingState and MoveState
// messages, then StateEnd.
struct StateAsk {
  std::uint16_t version = observer_protocol;
  static constexpr auto fields(auto& self, auto&& field) { field(self.version); }
};

// Changes the terms of all clients of that name, at all devices. Only root and the service's user
// may do so.
struct TermsAsk {
  std::uint16_t version = observer_protocol;
  std::string name;
  bool sets_guarantee = false;
  Size guarantee = 0;
  bool sets_limit = false;
  Size limit = unlimited;
  bool sets_weight = false;
  std::uint32_t weight = 1;
  bool sets_priority = false;
  std::int32_t priority = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.version), field(self.name), field(self.sets_guarantee), field(self.guarantee),
        field(self.sets_limit), field(self.limit), field(self.sets_weight), field(self.weight),
        field(self.sets_priority), field(self.priority);
  }
};

struct PlaceState {
  PlaceUuid place{};
  PlaceKind kind = PlaceKind::Device;
  std::uint32_t index = 0;  // NVML's device index
  Size capacity = 0;
  Size leased = 0;
  Size foreign = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.place), field(self.kind), field(self.index), field(self.capacity),
        field(self.leased), field(self.foreign);
  }
};

struct ClientState {
  ClientId client = 0;
  std::uint32_t process = 0;  // PID in the service's namespace; 0 if unknown
  std::uint32_t user = 0;
  std::string name;
  std::string group;
  std::uint32_t weight = 1;
  std::int32_t priority = 0;
  bool is_idle = false;
  bool has_turn = false;
  bool is_stalled = false;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.client), field(self.process), field(self.user), field(self.name), field(self.group),
        field(self.weight), field(self.priority), field(self.is_idle), field(self.has_turn),
        field(self.is_stalled);
  }
};

struct HoldingState {
  ClientId client = 0;
  PlaceUuid place{};
  Size leased = 0;
  Size guarantee = 0;
  Size limit = unlimited;
  Size cache = 0;
  Size waited_for = 0;
  std::string waits_for;  // the clients asked for it, or the one with the turn
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.client), field(self.place), field(self.leased), field(self.guarantee),
        field(self.limit), field(self.cache), field(self.waited_for), field(self.waits_for);
  }
};

// One reclaim request; the latest comes last.
struct MoveState {
  Microseconds ago = 0;   // when it was asked for
  Microseconds took = 0;  // until it ended, or until now
  PlaceUuid place{};
  std::string from;
  std::string for_whom;  // empty: a lowered limit or an overcommitted place
  ReclaimStep step = ReclaimStep::Cache;
  Size asked = 0;
  Size returned = 0;
  ReclaimEnd how = ReclaimEnd::Applied;  // unless it is open
  std::optional<bool> is_open;           // empty: the service is older
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.ago), field(self.took), field(self.place), field(self.from), field(self.for_whom),
        field(self.step), field(self.asked), field(self.returned), field(self.how),
        field(self.is_open);
  }
};

struct StateEnd {
  Microseconds up_for = 0;  // since the service started
  static constexpr auto fields(auto& self, auto&& field) { field(self.up_for); }
};

// The answer to TermsAsk and TimeTermsAsk, and to a request that cannot be answered.
struct ObserverAnswer {
  std::uint32_t changed = 0;  // clients
  std::string why_not;        // empty: done
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.changed), field(self.why_not);
  }
};

// Like TermsAsk, for device time.
struct TimeTermsAsk {
  std::uint16_t version = observer_protocol;
  std::string name;
  std::uint32_t cap = 100;  // percent
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.version), field(self.name), field(self.cap);
  }
};

// A client's time on its devices. Follows its ClientState.
struct TimeState {
  ClientId client = 0;
  std::uint32_t cap = 100;
  Microseconds held = 0;    // by its whole group, while it has one
  Microseconds waited = 0;  // with work but without a grant
  bool competes = false;    // it needs grants, since others want one of its devices too
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.client), field(self.cap), field(self.held), field(self.waited), field(self.competes);
  }
};

// A client that can leave its devices. Follows its ClientState.
struct PauseState {
  ClientId client = 0;
  bool is_paused = false;  // at the service's request
  DeviceStay stay = DeviceStay::On;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.client), field(self.is_paused), field(self.stay);
  }
};

using ObserverMessage =
    std::variant<StateAsk, TermsAsk, PlaceState, ClientState, HoldingState, MoveState, StateEnd,
                 ObserverAnswer, TimeTermsAsk, TimeState, PauseState>;

std::vector<std::byte> encode_observed(const ObserverMessage& message);
// Fails like decode().
Result<ObserverMessage> decode_observed(std::span<const std::byte> packet);

}  // namespace cuvmm::node
