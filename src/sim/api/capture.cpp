// SPDX-License-Identifier: Apache-2.0
#include "sim/bodies.hpp"
#include "sim/capture_mode.hpp"
#include "sim/capture_state.hpp"
#include "sim/context.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

// For queries of the legacy stream while blocking streams are captured. They invalidate nothing.
CUresult check_legacy(const Stream& stream) {
  if (stream.kind != StreamKind::Legacy) return CUDA_SUCCESS;
  const auto context = stream.context.lock();
  for (const auto& capture : live_captures()) {
    if (context != nullptr && capture->touches(*context, true)) {
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(const std::shared_ptr<Capture>& capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->is_valid() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                             : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// A graph to capture into, and the nodes after which to begin.
struct Target {
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
};

CUresult begin(CUstream handle, CUstreamCaptureMode mode, const Target* target) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->kind == StreamKind::Legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Holding holding{graph_lock()};
  if (capture_of(*stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (target == nullptr) {
    Capture::begin(*stream, mode);
    return CUDA_SUCCESS;
  }
  auto graph = Process::get().graphs.find(target->graph);
  if (graph == nullptr || graph->is_captured_into) return CUDA_ERROR_INVALID_VALUE;
  if (!nodes_of(*graph, target->nodes, target->count)) return CUDA_ERROR_INVALID_VALUE;
  CapturedStream after;
  for (size_t i = 0; i < target->count; ++i) {
    after.add(target->nodes[i], target->edges == nullptr ? CUgraphEdgeData{} : target->edges[i]);
  }
  Capture::begin(*stream, mode, std::move(graph), std::move(after));
  return CUDA_SUCCESS;
}

struct InfoOut {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

CUresult tell(CUstream handle, const InfoOut& out) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Holding holding{graph_lock()};
  if (const CUresult refused = check_legacy(*stream); refused != CUDA_SUCCESS) return refused;
  const auto capture = capture_of(*stream);
  *out.status = status_of(capture);
  if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  const CapturedStream& last = capture->of(*stream);
  if (out.edges == nullptr && out.nodes != nullptr) {
    for (const CUgraphEdgeData& edge : last.edges) {
      if (edge.from_port != 0 || edge.to_port != 0 || edge.type != 0) {
        return CUDA_ERROR_LOSSY_QUERY;
      }
    }
  }
  if (out.id != nullptr) *out.id = capture->id();
  if (out.graph != nullptr) *out.graph = capture->graph()->handle();
  if (out.nodes != nullptr) *out.nodes = last.nodes.data();
  if (out.edges != nullptr) *out.edges = last.edges.data();
  if (out.count != nullptr) *out.count = last.nodes.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, const CUgraphNode* nodes,
                             const CUgraphEdgeData* edges, size_t count, unsigned flags) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES && flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Holding holding{graph_lock()};
  const auto capture = capture_of(*stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!nodes_of(*capture->graph(), nodes, count)) return CUDA_ERROR_INVALID_VALUE;
  CapturedStream& last = capture->of(*stream);
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) last.set({});
  for (size_t i = 0; i < count; ++i) {
    last.add(nodes[i], edges == nullptr ? CUgraphEdgeData{} : edges[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuStreamBeginCapture)(CUstream stream) {
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr);
}

CUVMM_SIM(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, mode, nullptr);
}

CUVMM_SIM(cuStreamBeginCaptureToGraph)
(CUstream stream, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
 size_t count, CUstreamCaptureMode mode) {
  const Target target{.graph = graph, .nodes = nodes, .edges = edges, .count = count};
  return begin(stream, mode, &target);
}

CUVMM_SIM(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = exchange_thread_mode(*mode);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuStreamEndCapture)(CUstream handle, CUgraph* out) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out != nullptr) *out = nullptr;
  std::shared_ptr<Graph> lost;  // destroyed without the lock
  const Holding holding{graph_lock()};
  const auto capture = capture_of(*stream);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!capture->is_origin(*stream)) {
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // The capture ends whatever the answer is (measured).
  CUresult answer = CUDA_SUCCESS;
  if (capture->mode() != CU_STREAM_CAPTURE_MODE_RELAXED && !capture->is_of_this_thread()) {
    answer = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (!capture->is_valid()) {
    answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!capture->is_joined()) {
    answer = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  const bool given = capture->is_into_given_graph();
  auto graph = capture->end();
  if (answer == CUDA_SUCCESS && out != nullptr) {
    *out = graph->handle();
  } else if (!given) {
    graph->withdraw();
    lost = std::move(graph);
  }
  return answer;
}

CUVMM_SIM(cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus* status) {
  return tell(stream, {.status = status});
}

CUVMM_SIM(cuStreamGetCaptureInfo)(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return tell(stream, {.status = status, .id = id});
}

CUVMM_SIM(cuStreamGetCaptureInfo_v2)
(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
 const CUgraphNode** nodes, size_t* count) {
  return tell(stream, {.status = status, .id = id, .graph = graph, .nodes = nodes, .count = count});
}

CUVMM_SIM(cuStreamGetCaptureInfo_v3)
(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
 const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  return tell(
      stream,
      {.status = status, .id = id, .graph = graph, .nodes = nodes, .edges = edges, .count = count});
}

CUVMM_SIM(cuStreamUpdateCaptureDependencies)
(CUstream stream, CUgraphNode* nodes, size_t count, unsigned flags) {
  return update_dependencies(stream, nodes, nullptr, count, flags);
}

CUVMM_SIM(cuStreamUpdateCaptureDependencies_v2)
(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count, unsigned flags) {
  return update_dependencies(stream, nodes, edges, count, flags);
}

}  // namespace cuvmm::sim
