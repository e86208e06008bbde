// SPDX-License-Identifier: Apache-2.0
// The policy's decisions.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "node/terms.hpp"

namespace cuvmm::node {

struct LeaseGranted {
  ClientId client = 0;
  RequestId request = 0;
  PlaceId place = 0;
  Size bytes = 0;
};

// Grants a part of the request, which stays pending for the rest.
struct PartGranted {
  ClientId client = 0;
  RequestId request = 0;
  PlaceId place = 0;
  Size bytes = 0;
};

enum class RefusalReason : std::uint8_t {
  UnknownPlace,
  BeyondLimit,     // the client's limit
  TooMany,         // the client has too many waiting requests
  BeyondCapacity,  // others' guarantees and foreign memory leave too little
  NotReturned,     // other clients were asked, but did not return enough
  TurnsAreOff,     // it needs a turn, and turns are withheld, as under MPS
  TookTooLong,
  NotAtOnce,  // granting it would mean waiting or reclaiming
};
// A holder of memory at a place, named in a refusal.
struct Holder {
  ClientId client = 0;
  Size leased = 0;
  Size guarantee = 0;
};
struct LeaseRefused {
  ClientId client = 0;
  RequestId request = 0;
  PlaceId place = 0;
  Size bytes = 0;
  RefusalReason why = RefusalReason::UnknownPlace;
  Size free = 0;
  Size foreign = 0;
  std::vector<Holder> holders;  // largest first
};

// A client or its new terms are refused because the guarantees at that place exceed its capacity.
// On the host, where nothing is reclaimed, leased memory counts as well.
struct TermsRefused {
  ClientId client = 0;
  PlaceId place = 0;
  Size guaranteed = 0;
  Size capacity = 0;
};
// A new capacity is refused because the guarantees exceed it.
struct CapacityRefused {
  PlaceId place = 0;
  Size guaranteed = 0;
  Size capacity = 0;
};

// How a client gives memory back, mildest first.
enum class ReclaimStep : std::uint8_t {
  Cache,  // free cached memory
  Cold,   // move cold memory to the host while the program runs
  Pause,  // pause the program and move all of its memory
};
struct ReclaimRequested {
  ClientId client = 0;
  Revision revision = 0;
  PlaceId place = 0;
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;  // the minimum; 0: pause along with the rest of the group
  Microseconds deadline = 0;
  Microseconds work_within = 0;   // of a pause: how long to wait for the client's work to end
  std::optional<ClientId> asker;  // none: its limit was lowered, or the place is overcommitted
};
enum class ReclaimEnd : std::uint8_t { Applied, Refused, Expired, ClientGone };
struct ReclaimEnded {
  ClientId client = 0;
  Revision revision = 0;
  ReclaimEnd how = ReclaimEnd::Applied;
};
// An answer to a reclaim request that has ended or never existed.
struct AnswerStale {
  ClientId client = 0;
  Revision revision = 0;
};

// All members of a group start and end a turn together.
struct TurnStarted {
  ClientId client = 0;
  Microseconds quantum = 0;
};
struct TurnEnded {
  ClientId client = 0;
};
// The client's group has merged with another, or has fallen apart.
struct GroupChanged {
  ClientId client = 0;
  std::string group;
};
// No client takes turns at the place before `until`.
struct TurnsSuspended {
  PlaceId place = 0;
  ClientId because_of = 0;
  Microseconds in_flight = 0;  // how long its work has been in flight since the pause request
  Microseconds longest = 0;    // the limit on that
  Microseconds until = 0;
};

// A helper is to take the client off its devices, with everything that its pause left there. The
// event LeaveEnded follows.
struct LeaveRequested {
  ClientId client = 0;
};
// There is room for the client's contexts: a helper is to bring it back to its devices. The event
// ReturnEnded follows.
struct ReturnRequested {
  ClientId client = 0;
};

// No room can be gathered for the client's contexts. It stays off its devices while the policy
// keeps trying. Decided once, not once per attempt.
struct ReturnRefused {
  ClientId client = 0;
  PlaceId place = 0;
  Size bytes = 0;
};

using Decision =
    std::variant<LeaseGranted, PartGranted, LeaseRefused, TermsRefused, CapacityRefused,
                 ReclaimRequested, ReclaimEnded, AnswerStale, TurnStarted, TurnEnded, GroupChanged,
                 TurnsSuspended, LeaveRequested, ReturnRequested, ReturnRefused>;
using Decisions = std::vector<Decision>;

}  // namespace cuvmm::node
