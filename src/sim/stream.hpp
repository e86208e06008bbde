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

  // Ordered with the legacy stream of its context.
  bool is_blocking() const {
    return kind != StreamKind::Legacy && (flags & CU_STREAM_NON_BLOCKING) == 0;
  }

  // What the next work must come after (cuStreamWaitEvent). Guarded by the context's
  // submission lock.
  std::vector<Point> next_after;

  // Set while the stream is captured. Guarded by LockOrder::SimCapture (capture.hpp).
  std::shared_ptr<Capture> capture;

  // The handle that the program uses.
  CUstream handle() const { return reinterpret_cast<CUstream>(const_cast<Stream*>(this)); }
};

std::uint64_t next_stream_id();

// The stream that a call names: NULL by the call's flavour, 1 and 2, or a created one. nullptr
// where there is none such.
std::shared_ptr<Stream> find_stream(const std::shared_ptr<Context>& current, CUstream stream);
// What a call without a stream argument runs on.
std::shared_ptr<Stream> implicit_stream(const std::shared_ptr<Context>& current);

// Gives the stream an operation, or, while it is captured, the graph a node.
CUresult submit(const std::shared_ptr<Stream>& stream, Operation operation);
// The same past any capture, with the point that the operation is.
Point submit_now(const std::shared_ptr<Stream>& stream, Operation operation);
// The same for the record of an event, which is no work of a stream that has none (measured): it is
// behind what the stream's next work would be behind, and neither a query nor a wait of the stream
// sees it.
Point submit_record(const std::shared_ptr<Stream>& stream, Operation operation);

// What the stream is given next comes after this point too.
void order_after(Stream& stream, const Point& point);

// Everything that the stream was given so far, and what it was told to wait for. The legacy stream
// stands for every blocking stream of its context, also for those that are gone.
std::vector<Point> work_of(Stream& stream);
bool is_stream_done(Stream& stream);

}  // namespace cuvmm::sim
