// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "sim/cuda.hpp"
#include "sim/executor.hpp"
#include "sim/operation.hpp"

namespace cuvmm::sim {

class Context;
class Capture;

enum class StreamKind : std::uint8_t { Created, Legacy, PerThread };

struct Stream {
  std::weak_ptr<Context> context;
  StreamKind kind = StreamKind::Created;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  std::shared_ptr<Queue> queue = Queue::create();

  // Whether it is ordered with the legacy stream of its context.
  bool is_blocking() const {
    return kind != StreamKind::Legacy && (flags & CU_STREAM_NON_BLOCKING) == 0;
  }

  // The points that the next work must come after (cuStreamWaitEvent). Guarded by the context's
  // submission lock.
  std::vector<Point> next_after;

  // Set while the stream is captured. Guarded by LockOrder::SimCapture (capture.hpp).
  std::shared_ptr<Capture> capture;

  // The program's handle.
  CUstream handle() const { return reinterpret_cast<CUstream>(const_cast<Stream*>(this)); }
};

std::uint64_t next_stream_id();

// Finds the stream that a call names: NULL (by the call's flavour), 1, 2, or a created stream.
// Returns nullptr if there is no such stream.
std::shared_ptr<Stream> find_stream(const std::shared_ptr<Context>& current, CUstream stream);
// Also finds a created stream if no context is current. Returns an error if there is no such
// stream.
CUresult find_stream_of_any_context(CUstream handle, std::shared_ptr<Stream>* stream);
// The stream for calls without a stream argument.
std::shared_ptr<Stream> implicit_stream(const std::shared_ptr<Context>& current);

// Submits an operation to the stream or, if it is captured, adds a node to the graph.
CUresult submit(const std::shared_ptr<Stream>& stream, Operation operation);
// Submits outside of any capture, and returns the operation's point.
Point submit_now(const std::shared_ptr<Stream>& stream, Operation operation);
// Like submit_now(), for the record of an event. A record does not count as work of a stream that
// has none (measured): it runs after everything that the stream's next work would run after, but
// queries of and waits for the stream ignore it.
Point submit_record(const std::shared_ptr<Stream>& stream, Operation operation);

// Orders work submitted to the stream from now on after this point too.
void order_after(Stream& stream, const Point& point);

// All work submitted to the stream so far, and the points that it was told to wait for. For the
// legacy stream, also the work of all blocking streams of its context, destroyed ones included.
std::vector<Point> work_of(Stream& stream);
bool is_stream_done(Stream& stream);

}  // namespace cuvmm::sim
