// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "driver/calls.hpp"
#include "sched/recorded_call.hpp"
#include "stream/stream_state.hpp"

namespace cuvmm {

class Lane;

// An operation, by its lane and its number there. Numbers begin with 1 and are never reused.
struct QueuePosition {
  Lane* lane = nullptr;
  std::uint64_t number = 0;

  bool is_issued() const;
};

enum class EventUse : std::uint8_t { None, Records, WaitsFor };

// Who makes the driver call once the policy has chosen the operation.
enum class IssuedBy : std::uint8_t { Scheduler, Caller };

// What the scheduler needs to know about a call.
struct Request {
  Call call{};
  CUcontext context = nullptr;          // to make the call in
  const StreamState* stream = nullptr;  // whose work it is
  std::uint64_t kind = 0;  // a function, or a size of copies: calls of one kind take about as long
  Size bytes = 0;
  EventUse event_use = EventUse::None;
  CUevent event = nullptr;
  CUgraphExec graph = nullptr;  // launched: the driver orders it behind its earlier launches
  IssuedBy issued_by = IssuedBy::Scheduler;
  // Of a caller: receives its place in the launch queue; 0 if it is to make no marks.
  std::uint64_t* queued_to = nullptr;
  bool is_after_all = false;  // runs after everything that any lane holds
};

// A recorded driver call.
struct Operation {
  Request request;
  std::uint64_t number = 0;          // in its lane
  std::uint64_t order = 0;           // among all submissions of the process
  std::uint64_t submitted_at = 0;    // now_ns()
  std::vector<QueuePosition> after;  // operations of other lanes that must be issued first
  RecordedCall action;
  std::atomic<bool> is_ready{false};  // publishes the fields above
};

}  // namespace cuvmm
