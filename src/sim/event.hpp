// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "base/lock.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/cuda.hpp"
#include "sim/executor.hpp"

namespace cuvmm::sim {

class SharedRecord;

// One record of an event: its position in a stream, and the time at which it was reached.
struct Recording {
  Point point;
  std::atomic<std::int64_t> reached_ns{0};
};

struct Event {
  std::weak_ptr<Context> context;
  unsigned flags = 0;
  // CU_EVENT_INTERPROCESS: the event's progress in all processes. Set when the event is created.
  std::shared_ptr<SharedRecord> shared;

  std::shared_ptr<Recording> recording() const {
    const Reading reading{lock};
    return last;
  }
  void replace(std::shared_ptr<Recording> recording) {
    const Writing writing{lock};
    last = std::move(recording);
  }

  mutable SharedLock lock{LockOrder::SimHandles};  // guards `last`
  std::shared_ptr<Recording> last;                 // nullptr: never recorded, so complete

  CapturedRecord captured;  // guarded by LockOrder::SimCapture
};

// Records the event after the work submitted to the stream so far, outside of any capture.
void record_event(Event& event, const std::shared_ptr<Stream>& stream);
// Orders work submitted to the stream from now on after the event's current record.
void order_after_event(const std::shared_ptr<Stream>& stream, const Event& event);

}  // namespace cuvmm::sim
