// SPDX-License-Identifier: Apache-2.0
// Stream capture: work submitted to a captured stream becomes nodes of a graph.
#pragma once

#include <memory>
#include <vector>

#include "base/size.hpp"
#include "sim/cuda.hpp"
#include "sim/operation.hpp"

namespace cuvmm::sim {

class Capture;
class Context;
struct Event;
struct Stream;

// The nodes that an event stands for after it was last recorded in a captured stream; empty if it
// was not. Guarded by LockOrder::SimCapture, as member `captured` of Event.
struct CapturedRecord {
  std::shared_ptr<Capture> capture;  // kept after the capture ends, as the event stays unusable
  std::vector<CUgraphNode> nodes;
};

// Whether an event call is part of the capture or refers to work outside of it
// (CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL).
enum class EventScope : std::uint8_t { Capture, External };

// The functions below are cheap while no stream in the process is captured.
bool is_captured(const Stream& stream);
bool is_captured(const Event& event);

// The stream must be captured. Adds the operation as a node that depends on the stream's last work.
CUresult add_to_capture(Stream& stream, Operation operation);

// The stream must be captured.
CUresult capture_record_event(Stream& stream, const std::shared_ptr<Event>& event,
                              EventScope scope = EventScope::Capture);
// Drops what the event stood for in a capture, after it was recorded outside of any.
void forget_captured_record(Event& event);
// Either the stream must be captured, or the event recorded in a captured stream. A stream that
// waits for such an event joins its capture.
CUresult capture_wait_event(Stream& stream, const std::shared_ptr<Event>& event,
                            EventScope scope = EventScope::Capture);

// Stream-ordered memory of a captured stream. The address is valid at once; the memory belongs to
// the graph.
CUresult capture_allocation(Stream& stream, Size size, CUmemoryPool pool, CUdeviceptr* address);
CUresult capture_free(Stream& stream, CUdeviceptr address);

// Each of these returns CUDA_SUCCESS, or invalidates the captures that the call breaks and returns
// the error for the call.
//
// For calls that may wait for work elsewhere or make it wait (cuMemAlloc, cuMemFree, blocking
// waits, reading a pool's attribute). Depends on the modes of the captures and of the calling
// thread.
CUresult refuse_unsafe_call();
// For queries of and waits for a captured stream or event, in any mode, or for the legacy stream
// while a blocking stream is captured.
CUresult refuse_captured_stream(Stream& stream);
CUresult refuse_captured_event(Event& event);
// The same check without invalidating any capture (cuEventElapsedTime, measured).
CUresult check_captured_event(const Event& event);
// For waits for a whole context, in any mode.
CUresult refuse_context_wait(const Context& context);
// For work on the legacy stream while a blocking stream of the context is captured.
CUresult refuse_legacy_work(const Context& context);

// Called before the stream is destroyed. Its captured work must have been joined by then.
void leave_capture(Stream& stream);

}  // namespace cuvmm::sim
