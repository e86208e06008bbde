// SPDX-License-Identifier: Apache-2.0
// Stream capture: while it lasts, what a stream is given becomes nodes of a graph.
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

// What an event stands for that was last recorded in a captured stream. Empty: it was not. A
// member `captured` of Event, guarded by LockOrder::SimCapture.
struct CapturedRecord {
  std::shared_ptr<Capture> capture;  // kept after the capture's end: the event stays refused
  std::vector<CUgraphNode> nodes;
};

// Whether the event calls concern the capture alone or work outside of it
// (CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL).
enum class EventScope : std::uint8_t { Capture, External };

// No call below is expensive while nothing is captured in the process.
bool is_captured(const Stream& stream);
bool is_captured(const Event& event);

// For a captured stream: the operation becomes a node behind what the stream did last.
CUresult add_to_capture(Stream& stream, Operation operation);

// For a captured stream.
CUresult capture_record_event(Stream& stream, const std::shared_ptr<Event>& event,
                              EventScope scope = EventScope::Capture);
// The event was recorded past any capture: what it stood for is forgotten.
void forget_captured_record(Event& event);
// Where the stream is captured, or the event was recorded in a captured stream (a stream that
// waits for such an event joins the capture).
CUresult capture_wait_event(Stream& stream, const std::shared_ptr<Event>& event,
                            EventScope scope = EventScope::Capture);

// Stream-ordered memory of a captured stream: the address is given at once, the memory belongs to
// the graph.
CUresult capture_allocation(Stream& stream, Size size, CUmemoryPool pool, CUdeviceptr* address);
CUresult capture_free(Stream& stream, CUdeviceptr address);

// Each is CUDA_SUCCESS, or the refusal that a call answers, after invalidating the captures that
// it breaks.
//
// Calls that may wait or be waited for by work elsewhere (cuMemAlloc, cuMemFree, blocking waits,
// reading a pool's attribute): by the modes of the captures and of the calling thread.
CUresult refuse_unsafe_call();
// Asking after or waiting for a captured stream or event, in any mode; or for the legacy stream
// while a blocking one is captured.
CUresult refuse_captured_stream(Stream& stream);
CUresult refuse_captured_event(Event& event);
// The same for a call that breaks nothing (cuEventElapsedTime, measured).
CUresult check_captured_event(const Event& event);
// Waiting for a whole context, in any mode.
CUresult refuse_context_wait(const Context& context);
// Work on the legacy stream while a blocking stream of the context is captured.
CUresult refuse_legacy_work(const Context& context);

// The stream is about to be destroyed: what it was captured into must have joined by then.
void leave_capture(Stream& stream);

}  // namespace cuvmm::sim
