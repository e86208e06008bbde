// SPDX-License-Identifier: Apache-2.0
// What a client of the node service and the service say to each other (docs/node.md). Each message
// is one packet of a Unix socket: a header, then the kind's fields in the order of its fields(),
// little-endian. A body may be longer than this version knows: fields are only added at the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "base/size.hpp"
#include "node/decision.hpp"
#include "node/event.hpp"

namespace cuvmm::node {

inline constexpr std::uint16_t oldest_protocol = 1;  // that this build speaks
inline constexpr std::uint16_t newest_protocol = 1;
inline constexpr std::size_t longest_name = 64;
inline constexpr std::size_t most_holders = 16;  // that a refusal names
inline constexpr std::size_t longest_message = 4096;

// A device by its UUID, since ordinals mean something in one process only; all zero: the host.
using PlaceUuid = std::array<std::uint8_t, 16>;

// From a client: the first thing said.
struct Greeting {
  std::uint16_t oldest = oldest_protocol;
  std::uint16_t newest = newest_protocol;
  std::string name;  // for people; who it is, the service knows from the system
  std::string group;
  std::uint32_t weight = 1;  // wishes: the service decides
  std::int32_t priority = 0;
  std::uint8_t places = 0;  // so many HeldAlready follow before it is accepted
  static constexpr auto fields(auto& self, auto&& field) {
    field(self.oldest), field(self.newest), field(self.name), field(self.group), field(self.weight),
        field(self.priority), field(self.places);
  }
};
// A place that it uses, what it would like there, and what it holds already: it may have been a
// client of a service that was restarted. Later: a place that it begins to use. Answered by
// PlaceTerms.
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
  bool at_once = false;  // refused unless it can be granted without asking anybody
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
  std::string text;  // for people
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
  std::uint32_t process = 0;  // 0 where it has no number in the asker's namespace
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

// From a client: nobody waits for the answer any more. The answer may be on its way.
struct LeaseCancel {
  RequestId request = 0;
  static constexpr auto fields(auto& self, auto&& field) { field(self.request); }
};

// From a client that has been accepted: it takes part in sharing the devices' time. Answered by
// TimeBoard.
struct TimeWish {
  std::uint32_t cap = 100;  // percent of each device's time that it wants at the most
  static constexpr auto fields(auto& self, auto&& field) { field(self.cap); }
};
// From a client: what it says on its board has changed.
struct TimeNews {
  static constexpr auto fields(auto&, auto&&) {}
};
// From the service: the packet carries the descriptor of the client's board (grant_board.hpp).
struct TimeBoard {
  static constexpr auto fields(auto&, auto&&) {}
};

// A kind is a place in this list, from 1: new ones are added at the end.
using NodeMessage =
    std::variant<Greeting, HeldAlready, LeaseAsk, LeaseReturn, UseReport, ReclaimAnswer,
                 OutlastedTurn, Accepted, Rejected, PlaceTerms, LeaseGrant, LeaseRefusal,
                 ReclaimDemand, TurnNotice, TurnsOff, LeaseCancel, TimeWish, TimeNews, TimeBoard>;

// Names are cut to `longest_name`, holders to `most_holders`.
std::vector<std::byte> encode(const NodeMessage& message);

// InvalidArgument for what is no message: its sender is not to be listened to any more.
// NotAvailable for a kind that this build does not know, which may be passed over.
Result<NodeMessage> decode(std::span<const std::byte> packet);

// The version to speak with one who greets so, or nothing where there is none.
std::optional<std::uint16_t> common_version(const Greeting& greeting);

}  // namespace cuvmm::node
