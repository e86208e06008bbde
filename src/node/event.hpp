// SPDX-License-Identifier: Apache-2.0
// The events that drive the policy.
#pragma once

#include <variant>

#include "node/terms.hpp"

namespace cuvmm::node {

// A place was added, or its capacity changed.
struct PlaceConfigured {
  PlaceId place = 0;
  PlaceKind kind = PlaceKind::Device;
  Size capacity = 0;
  Size most_of_a_user = unlimited;  // leased by the clients of an untrusted user together
};
// Memory at a place held by processes that are not clients.
struct ForeignUseSeen {
  PlaceId place = 0;
  Size bytes = 0;
};
// A client connected. One that reconnects reports what it already holds.
struct ClientCame {
  ClientId client = 0;
  ClientTerms terms;
  std::map<PlaceId, Size> held;
};
struct TermsChanged {
  ClientId client = 0;
  ClientTerms terms;  // the group that they name never changes
};
struct ClientLeft {
  ClientId client = 0;
};
// Two clients share memory or an event, so they may wait for each other until one of them leaves.
struct ClientsJoined {
  ClientId client = 0;
  ClientId other = 0;
};
// A client asks for more memory. The client chooses `request`.
struct LeaseRequested {
  ClientId client = 0;
  RequestId request = 0;
  PlaceId place = 0;
  Size bytes = 0;
  bool at_once = false;   // refuse it rather than wait or reclaim
  bool in_parts = false;  // grant free memory while others still give back the rest
};
// The client no longer waits for the answer.
struct RequestCancelled {
  ClientId client = 0;
  RequestId request = 0;
};
struct LeaseReturned {
  ClientId client = 0;
  PlaceId place = 0;
  Size bytes = 0;
};
// A client's report on its memory at one place and on its activity.
struct UseReported {
  ClientId client = 0;
  PlaceId place = 0;
  Size cache = 0;  // free memory that it keeps cached
  Size cold = 0;   // memory that it could move to the host without stopping
  bool is_idle = false;
};

enum class ReclaimOutcome : std::uint8_t {
  Applied,
  Deferred,  // the client needs more time; allowed once
  Refused,
};
struct ReclaimAnswered {
  ClientId client = 0;
  Revision revision = 0;
  PlaceId place = 0;
  ReclaimOutcome outcome = ReclaimOutcome::Applied;
  Size returned = 0;  // counts even if the revision has already ended
};
// The client was asked to pause, but its work has not ended. Ignored if the request is more recent
// than a turn of its group is long.
struct WorkOutlastedTurn {
  ClientId client = 0;
};
// A client that can leave its devices reports whether it is paused at the service's request.
struct PresenceReported {
  ClientId client = 0;
  bool is_paused = false;
  bool has_held_calls = false;            // calls that wait for the end of the pause
  bool is_off_devices = false;            // or halfway
  std::map<PlaceId, Size> contexts = {};  // what has left each device
};
// The departure that LeaveRequested began has ended.
struct LeaveEnded {
  ClientId client = 0;
  enum class How : std::uint8_t { Off, On, Halfway } how = How::Off;
  std::map<PlaceId, Size> contexts = {};  // what has left each device
};
// The return that ReturnRequested began has ended.
struct ReturnEnded {
  ClientId client = 0;
  // Halfway: its contexts may be on the devices already, but its calls are still locked.
  enum class How : std::uint8_t { Back, Off, Halfway } how = How::Back;
};
struct TimePassed {};

using NodeEvent = std::variant<PlaceConfigured, ForeignUseSeen, ClientCame, TermsChanged,
                               ClientLeft, ClientsJoined, LeaseRequested, RequestCancelled,
                               LeaseReturned, UseReported, ReclaimAnswered, WorkOutlastedTurn,
                               PresenceReported, LeaveEnded, ReturnEnded, TimePassed>;

}  // namespace cuvmm::node
