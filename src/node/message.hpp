// SPDX-License-Identifier: Apache-2.0
// The messages between the node service and its clients (docs/node.md). Each message is one packet
// on a Unix socket: a header, then the fields in the order of the kind's fields(), little-endian. A
// body may be longer than this version knows, since new fields are only added at the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/group_step.hpp"
#include "base/result.hpp"
#include "base/size.hpp"
#include "node/decision.hpp"
#include "node/event.hpp"

namespace cuvmm::node {

inline constexpr std::uint16_t oldest_protocol = 1;  // supported by this build
inline constexpr std::uint16_t newest_protocol = 1;
inline constexpr std::size_t longest_name = 64;
inline constexpr std::size_t most_holders = 16;  // named in a refusal
inline constexpr std::size_t most_share_keys = 128;
inline constexpr std::size_t most_context_sizes = 16;
inline constexpr std::size_t longest_message = 4096;

// A device's UUID, since ordinals are only meaningful within one process. All zero: the host.
using PlaceUuid = std::array<std::uint8_t, 16>;

// From a client: the first message.
struct Greeting {
  std::uint16_t oldest = oldest_protocol;
  std::uint16_t newest = newest_protocol;
  std::string name;  // for display; the kernel tells the service who the client is
  std::string group;
  std::uint32_t weight = 1;  // weight and priority are requests: the service decides
  std::int32_t priority = 0;
  std::uint8_t places = 0;  // number of HeldAlready messages that follow before it is accepted
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.oldest), field(self.newest), field(self.name), field(self.group), field(self.weight),
        field(self.priority), field(self.places);
  }
};
// From a client: a place it uses, the guarantee and limit it asks for there, and the memory it
// already holds, since it may have been a client of a service that was restarted. After acceptance:
// a place that it begins to use. Answered by PlaceTerms.
struct HeldAlready {
  PlaceUuid place{};
  Size bytes = 0;
  Size guarantee = 0;
  Size limit = unlimited;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.place), field(self.bytes), field(self.guarantee), field(self.limit);
  }
};
struct LeaseAsk {
  RequestId request = 0;
  PlaceUuid place{};
  Size bytes = 0;
  bool at_once = false;  // refused unless it can be granted without reclaiming
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.request), field(self.place), field(self.bytes), field(self.at_once);
  }
};
struct LeaseReturn {
  PlaceUuid place{};
  Size bytes = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.place), field(self.bytes); }
};
struct UseReport {
  PlaceUuid place{};
  Size cache = 0;
  Size cold = 0;
  bool is_idle = false;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.place), field(self.cache), field(self.cold), field(self.is_idle);
  }
};
struct ReclaimAnswer {
  Revision revision = 0;
  PlaceUuid place{};
  ReclaimOutcome outcome = ReclaimOutcome::Applied;
  Size returned = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.revision), field(self.place), field(self.outcome), field(self.returned);
  }
};
struct OutlastedTurn {
  Microseconds in_flight = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.in_flight); }
};

// From the service: the answer to a greeting.
struct Accepted {
  std::uint16_t version = newest_protocol;
  std::uint32_t weight = 1;
  std::int32_t priority = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.version), field(self.weight), field(self.priority);
  }
};
enum class Rejection : std::uint8_t { Version, NotAllowed, GuaranteesDoNotFit, TooManyClients };
struct Rejected {
  Rejection why = Rejection::Version;
  std::uint16_t oldest = oldest_protocol;
  std::uint16_t newest = newest_protocol;
  std::string text;  // for display
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.why), field(self.oldest), field(self.newest), field(self.text);
  }
};
struct PlaceTerms {
  PlaceUuid place{};
  Size guarantee = 0;
  Size limit = unlimited;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.place), field(self.guarantee), field(self.limit);
  }
};
struct LeaseGrant {
  RequestId request = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.request); }
};
struct HolderNamed {
  std::uint32_t process = 0;  // 0 if it has no PID in the requester's namespace
  Size leased = 0;
  Size guarantee = 0;
  std::string name;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.process), field(self.leased), field(self.guarantee), field(self.name);
  }
};
struct LeaseRefusal {
  RequestId request = 0;
  RefusalReason why = RefusalReason::UnknownPlace;
  Size free = 0;
  Size foreign = 0;
  std::vector<HolderNamed> holders;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.request), field(self.why), field(self.free), field(self.foreign),
        field(self.holders);
  }
};
struct ReclaimDemand {
  Revision revision = 0;
  PlaceUuid place{};
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;
  Microseconds within = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.revision), field(self.place), field(self.step), field(self.bytes),
        field(self.within);
  }
};
struct TurnNotice {
  bool has_turn = false;
  Microseconds quantum = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.has_turn), field(self.quantum);
  }
};
struct TurnsOff {
  PlaceUuid place{};
  Microseconds length = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.place), field(self.length); }
};

// From a client: it no longer waits for the answer, which may already be on its way.
struct LeaseCancel {
  RequestId request = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.request); }
};

// From an accepted client: it takes part in sharing device time. Answered by TimeBoard.
struct TimeWish {
  std::uint32_t cap = 100;  // the most it wants of each device's time, in percent
  static constexpr auto fields(auto& self, auto&& field) { field(self.cap); }
};
// From a client: it has changed its part of the board.
struct TimeNews {
  static constexpr auto fields(auto&, auto&&) {}
};
// From the service: the packet carries the file descriptor of the client's board (grant_board.hpp).
struct TimeBoard {
  static constexpr auto fields(auto&, auto&&) {}
};

// From an accepted client: it takes ForegroundBoards.
struct YieldsToForeground {
  static constexpr auto fields(auto&, auto&&) {}
};
// From the service: the packet carries a descriptor for reading the board of a client of higher
// priority. The slot is the receiver's.
struct ForegroundBoard {
  std::uint32_t slot = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.slot); }
};

// Members of a group pause together (base/group_step.hpp).

// From an accepted client: it can pause with its group.
struct PausesWithGroup {
  static constexpr auto fields(auto&, auto&&) {}
};
// From the service, before the ReclaimDemand of this revision: pause with the group.
struct PauseWithGroup {
  Revision revision = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.revision); }
};
// From a client: it holds its calls, and whether its work has ended.
struct StandsStill {
  Revision revision = 0;
  bool has_ended_work = false;
  // How many steps the client had acted on, since it connected. A report that crossed a step is out
  // of date.
  std::optional<std::uint32_t> steps_heard = {};
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.revision), field(self.has_ended_work), field(self.steps_heard);
  }
};
struct NextGroupStep {
  Revision revision = 0;
  GroupStep step = GroupStep::Hold;
  static constexpr auto fields(auto& self, auto&& field) { field(self.revision), field(self.step); }
};

// From an accepted client: it has exported memory or events under these handles, or opened them.
// Clients of one user that name the same key are members of one group from then on. A key is a
// digest of its handle, so only processes that have had the handle know it.
struct SharesHandles {
  std::vector<ShareKey> keys;
  static constexpr auto fields(auto& self, auto&& field) { field(self.keys); }
};

// From the service, before the ReclaimDemand of this revision, which is a pause: how long the
// client waits for its work to end. Work that takes longer outlasts a turn (OutlastedTurn).
struct WorkDeadline {
  Revision revision = 0;
  Microseconds within = 0;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.revision), field(self.within);
  }
};

// Memory of a client's contexts, in MiB, by the device's index in NVML.
using ContextSizes = std::vector<std::uint32_t>;

// From an accepted client that can leave its devices: whether it is paused at the service's
// request. Sent again whenever that changes. If a PresenceDemand changes it, the report precedes
// the PresenceAnswer.
struct PresenceReport {
  bool is_paused = false;
  bool has_held_calls = false;
  bool is_off_devices = false;  // or halfway
  ContextSizes contexts;        // memory that has left
  friend bool operator==(const PresenceReport&, const PresenceReport&) = default;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.is_paused), field(self.has_held_calls), field(self.is_off_devices),
        field(self.contexts);
  }
};
// From the service, on behalf of the helper that takes the client off its devices or brings it
// back: the steps of docs/pausing.md.
enum class PresenceStep : std::uint8_t { Look, Leave, HasLeft, HasReturned };
struct PresenceDemand {
  std::uint32_t number = 0;
  PresenceStep step = PresenceStep::Look;
  ContextSizes contexts;
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.number), field(self.step), field(self.contexts);
  }
};
enum class PresenceNow : std::uint8_t { OnDevices, Leaving, OffDevices };
struct PresenceAnswer {
  std::uint32_t number = 0;  // of the demand
  bool is_done = false;
  PresenceNow now = PresenceNow::OnDevices;
  ContextSizes contexts;
  std::string why_not;  // for display
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.number), field(self.is_done), field(self.now), field(self.contexts),
        field(self.why_not);
  }
};

// From a client, before the LeaseAsk of this request: it accepts free memory as a first part while
// others still give back the rest.
struct TakesParts {
  RequestId request = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.request); }
};
// From the service: a part of the request. The LeaseGrant covers the rest.
struct LeasePart {
  RequestId request = 0;
  Size bytes = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.request), field(self.bytes); }
};

// A kind's number is its position in this list, counted from 1. Add new kinds at the end.
using NodeMessage =
    std::variant<Greeting, HeldAlready, LeaseAsk, LeaseReturn, UseReport, ReclaimAnswer,
                 OutlastedTurn, Accepted, Rejected, PlaceTerms, LeaseGrant, LeaseRefusal,
                 ReclaimDemand, TurnNotice, TurnsOff, LeaseCancel, TimeWish, TimeNews, TimeBoard,
                 PausesWithGroup, PauseWithGroup, StandsStill, NextGroupStep, YieldsToForeground,
                 ForegroundBoard, SharesHandles, WorkDeadline, PresenceReport, PresenceDemand,
                 PresenceAnswer, TakesParts, LeasePart>;

// Truncates names to `longest_name`, holders to `most_holders`, keys to `most_share_keys`, and
// sizes of contexts to `most_context_sizes`.
std::vector<std::byte> encode(const NodeMessage& message);

// InvalidArgument if the packet is malformed: disconnect its sender. NotAvailable if this build
// does not know the kind: ignore the message.
Result<NodeMessage> decode(std::span<const std::byte> packet);

// The newest version that both sides support, if any.
std::optional<std::uint16_t> common_version(const Greeting& greeting);

}  // namespace cuvmm::node
