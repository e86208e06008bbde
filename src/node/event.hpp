// SPDX-License-Identifier: Apache-2.0
// What the policy is told.
#pragma once

#include <variant>

#include "node/terms.hpp"

namespace cuvmm::node {

// A place is there, or has another capacity.
struct PlaceConfigured {
  PlaceId place = 0;
  PlaceKind kind = PlaceKind::Device;
  Size capacity = 0;
};
// What processes hold there that are no clients.
struct ForeignUseSeen {
  PlaceId place = 0;
  Size bytes = 0;
};
// A client comes. One that was there before says what it holds.
struct ClientCame {
  ClientId client = 0;
  ClientTerms terms;
  std::map<PlaceId, Size> held;
};
struct TermsChanged {
  ClientId client = 0;
  ClientTerms terms;  // its group stays
};
struct ClientLeft {
  ClientId client = 0;
};
// Asks for more memory. `request` is the client's own number.
struct LeaseRequested {
  ClientId client = 0;
  RequestId request = 0;
  PlaceId place = 0;
  Size bytes = 0;
  bool at_once = false;  // nobody is asked for it, and it does not wait
};
// Nobody waits for it any more.
struct RequestCancelled {
  ClientId client = 0;
  RequestId request = 0;
};
struct LeaseReturned {
  ClientId client = 0;
  PlaceId place = 0;
  Size bytes = 0;
};
// What a client says of its memory at one place, and of its work.
struct UseReported {
  ClientId client = 0;
  PlaceId place = 0;
  Size cache = 0;  // free memory that it keeps
  Size cold = 0;   // memory that it could move to the host without stopping
  bool is_idle = false;
};

enum class ReclaimOutcome : std::uint8_t {
  Applied,
  Deferred,  // it needs more time: once
  Refused,
};
struct ReclaimAnswered {
  ClientId client = 0;
  Revision revision = 0;
  PlaceId place = 0;
  ReclaimOutcome outcome = ReclaimOutcome::Applied;
  Size returned = 0;  // counts even if the revision has ended meanwhile
};
// Its work has been in flight for longer than a turn: it cannot be made to stop.
struct WorkOutlastedTurn {
  ClientId client = 0;
};
struct TimePassed {};

using NodeEvent = std::variant<PlaceConfigured, ForeignUseSeen, ClientCame, TermsChanged,
                               ClientLeft, LeaseRequested, RequestCancelled, LeaseReturned,
                               UseReported, ReclaimAnswered, WorkOutlastedTurn, TimePassed>;

}  // namespace cuvmm::node
