// SPDX-License-Identifier: Apache-2.0
// Streams, events and waits: the program's use of them tells how its work is ordered and how far it
// has come. Each call is forwarded unchanged.
#include "hook/node_events.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

// A new stream is registered at once: even if no later call names it, it may have work to wait for.
template <Call call>
CUresult learn(const Forward<call>& forward, CUresult answer, const CUstream* made) {
  if (answer != CUDA_SUCCESS || made == nullptr) return answer;
  if (StreamClock* const clock = clock_of(forward)) clock->table().stream_began(*made);
  forward.engine().scheduling().stream_began(*made);
  return answer;
}

// Announces first: a deferred copy may be work of this stream, and must come before its last mark.
template <Call call>
CUresult end_stream(const Forward<call>& forward, CUstream stream) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (Serving* const serving = forward.engine().serving()) {
    if (Resizer* const resizer = serving->resizer()) resizer->stream_ends(stream);
    serving->clock.stream_ends(stream);
  }
  forward.engine().scheduling().stream_ends(stream);
  Captures::Ending captures{forward.engine().captures(), stream};
  const CUresult answer = forward.announced(stream);
  if (answer == CUDA_SUCCESS) captures.is_over();
  return answer;
}

// Forgets the event before the driver destroys it, since another thread may get the handle at once.
template <Call call>
CUresult end_event(const Forward<call>& forward, CUevent event) {
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  if (StreamClock* clock = clock_of(forward)) clock->events().ended(event);
  forward.engine().scheduling().event_ends(event);
  return forward.announced(event);
}

// On success, all earlier work is done. A wait also lets pools release memory that was freed before
// it; a mere query does not.
enum class Asks : std::uint8_t { ToWait, Whether };

// Nothing to add for a context: the driver's synchronization of a context waits for events as well.
struct NoOperations {
  NoOperations(const StreamClock& /*clock*/, CUcontext /*context*/) {}
  static bool are_done() { return true; }
  static CUresult wait() { return CUDA_SUCCESS; }
};
template <class Of>
using OperationsOf =
    std::conditional_t<std::is_same_v<Of, StreamName>, StreamClock::PlacedOperations, NoOperations>;

template <Call call, class Of>
CUresult look_at(const Forward<call>& forward, Asks asks, Of of, auto... arguments) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr) return forward(arguments...);
  const Horizon horizon = serving->clock.horizon_of(of);
  const OperationsOf<Of> operations{serving->clock, of};
  CUresult answer = forward(arguments...);
  if (answer == CUDA_SUCCESS && asks == Asks::ToWait) answer = operations.wait();
  if (answer == CUDA_SUCCESS && !operations.are_done()) answer = CUDA_ERROR_NOT_READY;
  if (answer != CUDA_SUCCESS) return answer;
  if (asks == Asks::Whether) {
    horizon.reached();
  } else if (!horizon.is_empty()) {
    horizon.waited_for();
    serving->memory.program_waited();
  }
  return answer;
}

template <Call call>
CUresult look_at_event(const Forward<call>& forward, Asks asks, CUevent event) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || !serving->clock.events().may_know(event)) return forward(event);
  const EventPlaces::Recorded recorded = serving->clock.events().last_record(event);
  const CUresult answer = forward(event);
  if (answer != CUDA_SUCCESS) return answer;
  const auto told =
      asks == Asks::ToWait ? StreamTable::Told::ByAWait : StreamTable::Told::ByTheDevice;
  const bool told_something = serving->clock.is_reached(event, recorded, told);
  if (asks == Asks::ToWait && told_something) serving->memory.program_waited();
  return answer;
}

template <Call call>
CUresult record_event_on(const Forward<call>& forward, CUevent event, CUstream stream,
                         auto... flags) {
  StreamClock* clock = clock_of(forward);
  if (clock == nullptr) return forward(event, stream, flags...);
  const StreamName name = stream_name(forward, stream);
  EventPlaces::Recording recording{clock->events(), event};
  StreamClock::Place place = clock->place_on(name);
  const CUresult answer = forward(event, stream, flags...);
  if (answer == CUDA_SUCCESS) clock->event_recorded(recording, name, std::move(place));
  return answer;
}

// The event is recorded at unknown times, by a graph node or another process.
template <Call call>
CUresult recorded_unseen(const Forward<call>& forward, CUevent event, auto... arguments) {
  StreamClock* clock = clock_of(forward);
  if (clock != nullptr) clock->events().recorded_unseen(event);
  return forward(arguments...);
}

void event_is_shared(Engine& engine, CUevent event, const CUipcEventHandle& handle) {
  engine.scheduling().event_is_shared(event);
  engine.shares(handle);
}

template <Call call>
CUresult used_by_graphs(const Forward<call>& forward, auto... arguments) {
  forward.engine().scheduling().graphs_use_events();
  return forward(arguments...);
}

template <Call call>
CUresult recorded_by_graphs(const Forward<call>& forward, CUevent event, auto... arguments) {
  forward.engine().scheduling().graphs_use_events();
  return recorded_unseen(forward, event, arguments...);
}

template <Call call>
CUresult set_node(const Forward<call>& forward, const CUgraphNodeParams* parameters,
                  auto... arguments) {
  note_event_of_node(forward, parameters);
  return forward(arguments...);
}

}  // namespace

CUVMM_HOOK(cuStreamCreate, CUstream* stream, unsigned flags) {
  return learn(forward, forward(stream, flags), stream);
}

CUVMM_HOOK(cuStreamCreateWithPriority, CUstream* stream, unsigned flags, int priority) {
  return learn(forward, forward(stream, flags, priority), stream);
}

CUVMM_HOOK(cuGreenCtxStreamCreate, CUstream* stream, CUgreenCtx context, unsigned flags,
           int priority) {
  // cuvmm does not track the context that orders its work.
  if (Resizer* const resizer = resizer_of(forward)) resizer->order_is_lost();
  return learn(forward, forward(stream, context, flags, priority), stream);
}

CUVMM_HOOK(cuStreamDestroy, CUstream stream) {
  return end_stream(forward, stream);
}
CUVMM_HOOK(cuStreamDestroy_v2, CUstream stream) {
  return end_stream(forward, stream);
}

CUVMM_HOOK(cuStreamSynchronize, CUstream stream) {
  return look_at(forward, Asks::ToWait, stream_name(forward, stream), stream);
}
CUVMM_HOOK(cuStreamQuery, CUstream stream) {
  return look_at(forward, Asks::Whether, stream_name(forward, stream), stream);
}

CUVMM_HOOK(cuCtxSynchronize) {
  return look_at(forward, Asks::ToWait, current_context(forward.engine().driver()));
}
CUVMM_HOOK(cuCtxSynchronize_v2, CUcontext context) {
  const CUcontext meant = context != nullptr ? context : current_context(forward.engine().driver());
  return look_at(forward, Asks::ToWait, meant, context);
}

CUVMM_HOOK(cuEventRecord, CUevent event, CUstream stream) {
  return record_event_on(forward, event, stream);
}

CUVMM_HOOK(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned flags) {
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0)
    return recorded_by_graphs(forward, event, event, stream, flags);
  return record_event_on(forward, event, stream, flags);
}

CUVMM_HOOK(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags) {
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) forward.engine().scheduling().graphs_use_events();
  StreamClock* clock = clock_of(forward);
  if (clock == nullptr) return forward(stream, event, flags);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  const StreamName name = stream_name(forward, stream);
  // The event may belong to a capture, which the stream then joins.
  if (forward.engine().captures().any()) clock->note_work_before_capture(name);
  const EventPlaces::Recorded recorded = clock->events().last_record(event);
  const CUresult answer = forward.announced(stream, event, flags);
  if (answer == CUDA_SUCCESS) clock->waited_for_by(name, event, recorded);
  return answer;
}

CUVMM_HOOK(cuEventQuery, CUevent event) {
  return look_at_event(forward, Asks::Whether, event);
}
CUVMM_HOOK(cuEventSynchronize, CUevent event) {
  return look_at_event(forward, Asks::ToWait, event);
}
CUVMM_HOOK(cuEventDestroy, CUevent event) {
  return end_event(forward, event);
}
CUVMM_HOOK(cuEventDestroy_v2, CUevent event) {
  return end_event(forward, event);
}

CUVMM_HOOK(cuCtxRecordEvent, CUcontext context, CUevent event) {
  return recorded_unseen(forward, event, context, event);
}
CUVMM_HOOK(cuGreenCtxRecordEvent, CUgreenCtx context, CUevent event) {
  return recorded_unseen(forward, event, context, event);
}
CUVMM_HOOK(cuIpcGetEventHandle, CUipcEventHandle* handle, CUevent event) {
  const CUresult answer = recorded_unseen(forward, event, handle, event);
  if (answer == CUDA_SUCCESS) event_is_shared(forward.engine(), event, *handle);
  return answer;
}
CUVMM_HOOK(cuIpcOpenEventHandle, CUevent* event, CUipcEventHandle handle) {
  const CUresult answer = forward(event, handle);
  StreamClock* clock = clock_of(forward);
  if (clock != nullptr && answer == CUDA_SUCCESS) clock->events().recorded_unseen(*event);
  if (answer == CUDA_SUCCESS) event_is_shared(forward.engine(), *event, handle);
  return answer;
}
CUVMM_HOOK(cuGraphAddEventRecordNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
           size_t count, CUevent event) {
  return recorded_by_graphs(forward, event, node, graph, after, count, event);
}
CUVMM_HOOK(cuGraphEventRecordNodeSetEvent, CUgraphNode node, CUevent event) {
  return recorded_by_graphs(forward, event, node, event);
}
CUVMM_HOOK(cuGraphExecEventRecordNodeSetEvent, CUgraphExec graph, CUgraphNode node, CUevent event) {
  return recorded_by_graphs(forward, event, graph, node, event);
}
CUVMM_HOOK(cuGraphAddEventWaitNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
           size_t count, CUevent event) {
  return used_by_graphs(forward, node, graph, after, count, event);
}
CUVMM_HOOK(cuGraphAddNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
           CUgraphNodeParams* parameters) {
  return set_node(forward, parameters, node, graph, after, count, parameters);
}
CUVMM_HOOK(cuGraphAddNode_v2, CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* parameters) {
  return set_node(forward, parameters, node, graph, after, edges, count, parameters);
}
CUVMM_HOOK(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams* parameters) {
  return set_node(forward, parameters, node, parameters);
}

}  // namespace cuvmm::hook
