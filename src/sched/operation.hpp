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

// An operation of a lane, by its number there. Numbers begin with 1 and never come twice.
struct QueuePosition {
  Lane* lane = nullptr;
  std::uint64_t number = 0;

  bool is_issued() const;
};

enum class EventUse : std::uint8_t { None, Records, WaitsFor };

// Whose turn it is to call the driver when the policy has chosen an operation.
enum class IssuedBy : std::uint8_t { Scheduler, Caller };

// What is to be known of a call in order to issue it at its time.
struct Request {
  Call call{};
  CUcontext context = nullptr;          // that it is to be made in
  const StreamState* stream = nullptr;  // whose work it is
  std::uint64_t kind = 0;  // calls of one kind take about as long: a function, a size of copies
  Size bytes = 0;
  EventUse event_use = EventUse::None;
  CUevent event = nullptr;
  IssuedBy issued_by = IssuedBy::Scheduler;
  bool is_after_all = false;  // that any lane holds
};

// A recorded call of the driver.
struct Operation {
  Request request;
  std::uint64_t number = 0;          // in its lane
  std::uint64_t order = 0;           // of all submissions of the process
  std::uint64_t submitted_at = 0;    // now_ns()
  std::vector<QueuePosition> after;  // of other lanes: to be issued before it
  RecordedCall action;
  std::atomic<bool> is_ready{false};  // all of the above is written
};

}  // namespace cuvmm
