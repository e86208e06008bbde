// SPDX-License-Identifier: Apache-2.0
// What the policy decides.
#pragma once

#include <optional>
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

enum class RefusalReason : std::uint8_t {
  UnknownPlace,
  BeyondLimit,     // of the client
  TooMany,         // requests of the client wait already
  BeyondCapacity,  // what others are guaranteed, or foreign processes hold, leaves less
  NotReturned,     // those who were asked did not give enough back
  TurnsAreOff,     // it would take turns, which work that outlasts them prevents
  TookTooLong,
  NotAtOnce,  // others would have to be asked, or come first
};
// Who holds memory at a place, for the message that the asker gets.
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
  std::vector<Holder> holders;  // most first
};

// A client or its new terms are refused: the guarantees at that place add up to more than it has.
// On the host, from which nothing is asked back, what is leased counts as well.
struct TermsRefused {
  ClientId client = 0;
  PlaceId place = 0;
  Size guaranteed = 0;
  Size capacity = 0;
};
// A capacity is refused for the same reason.
struct CapacityRefused {
  PlaceId place = 0;
  Size guaranteed = 0;
  Size capacity = 0;
};

// How a client gives memory back, the mildest first.
enum class ReclaimStep : std::uint8_t {
  Cache,  // free what it keeps
  Cold,   // move memory to the host while it runs
  Pause,  // stop, and move all of it
};
struct ReclaimRequested {
  ClientId client = 0;
  Revision revision = 0;
  PlaceId place = 0;
  ReclaimStep step = ReclaimStep::Cache;
  Size bytes = 0;  // at least; 0: stop with the rest of the group
  Microseconds deadline = 0;
  std::optional<ClientId> asker;  // nobody: its own limit, or foreign use
};
enum class ReclaimEnd : std::uint8_t { Applied, Refused, Expired, ClientGone };
struct ReclaimEnded {
  ClientId client = 0;
  Revision revision = 0;
  ReclaimEnd how = ReclaimEnd::Applied;
};
// An answer to a revision that has ended or never was.
struct AnswerStale {
  ClientId client = 0;
  Revision revision = 0;
};

// Both come for all members of a group together.
struct TurnStarted {
  ClientId client = 0;
  Microseconds quantum = 0;
};
struct TurnEnded {
  ClientId client = 0;
};
// Until then everybody runs at that place as without the service.
struct TurnsSuspended {
  PlaceId place = 0;
  ClientId because_of = 0;
  Microseconds until = 0;
};

using Decision =
    std::variant<LeaseGranted, LeaseRefused, TermsRefused, CapacityRefused, ReclaimRequested,
                 ReclaimEnded, AnswerStale, TurnStarted, TurnEnded, TurnsSuspended>;
using Decisions = std::vector<Decision>;

}  // namespace cuvmm::node
