// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_exec.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/graph_edit.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

constexpr cuuint64_t flags_of_instantiation =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// The reason for a failure, and the node at which it occurred.
struct Failure {
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUgraphNode node = nullptr;
};

CUresult instantiate(CUgraphExec* out, CUgraph handle, cuuint64_t flags, Failure* failure) {
  if (out == nullptr || (flags & ~flags_of_instantiation) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return lacking("cuGraphInstantiate", "has no graphs that the device launches");
  }
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  std::shared_ptr<GraphExec> exec;
  const Holding holding{graph_lock()};
  const auto graph = Process::get().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool has_memory = graph->has_memory_nodes();
  // The addresses of a graph's memory are fixed, so two instances would share them.
  if (has_memory && !graph->instance.expired()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!graph->order(&failure->node)) {
    failure->result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  exec = GraphExec::create(*graph, flags);
  if (exec == nullptr) {  // a child graph has a cycle
    failure->result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (has_memory) graph->instance = exec;
  *out = Process::get().graph_execs.add(exec);
  failure->result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult instantiate_with_log(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                              size_t log_size) {
  if (log != nullptr && log_size != 0) *log = '\0';
  Failure failure;
  const CUresult answer = instantiate(out, graph, 0, &failure);
  if (error_node != nullptr) *error_node = failure.node;
  return answer;
}

std::shared_ptr<GraphExec> find_exec(CUgraphExec exec) {
  return Process::get().graph_execs.find(exec);
}

CUresult update(CUgraphExec exec_handle, CUgraph graph_handle, UpdateResult* result) {
  result->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const Holding holding{graph_lock()};
  const auto exec = find_exec(exec_handle);
  const auto graph = Process::get().graphs.find(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = update_nodes(*exec->graph, *graph);
  return result->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

bool may_be_disabled(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET;
}

}  // namespace

CUVMM_SIM(cuGraphInstantiate)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size) {
  return instantiate_with_log(exec, graph, error_node, log, log_size);
}
CUVMM_SIM(cuGraphInstantiate_v2)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size) {
  return instantiate_with_log(exec, graph, error_node, log, log_size);
}
CUVMM_SIM(cuGraphInstantiateWithFlags)(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  Failure failure;
  return instantiate(exec, graph, flags, &failure);
}
CUVMM_SIM(cuGraphInstantiateWithParams)
(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    CUVMM_SIM_CONTEXT(context);
    if (find_stream(context, parameters->hUploadStream) == nullptr) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
  }
  Failure failure;
  const CUresult answer = instantiate(exec, graph, parameters->flags, &failure);
  parameters->result_out = failure.result;
  parameters->hErrNode_out = failure.node;
  return answer;
}

CUVMM_SIM(cuGraphExecGetFlags)(CUgraphExec handle, cuuint64_t* flags) {
  const auto exec = find_exec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphExecDestroy)(CUgraphExec handle) {
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  // Pending launches still run. Destroyed outside of any lock, since user objects' callbacks run.
  return Process::get().graph_execs.remove(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphLaunch)(CUgraphExec handle, CUstream stream_handle) {
  CUVMM_SIM_CONTEXT(context);
  const auto exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto stream = find_stream(context, stream_handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return launch_graph(exec, stream);
}

// Graphs need no preparation here.
CUVMM_SIM(cuGraphUpload)(CUgraphExec handle, CUstream stream) {
  CUVMM_SIM_CONTEXT(context);
  if (find_exec(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_stream(context, stream) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphExecUpdate)
(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  UpdateResult result;
  const CUresult answer = update(exec, graph, &result);
  *out = result.result;
  if (error_node != nullptr) *error_node = result.node;
  return answer;
}
CUVMM_SIM(cuGraphExecUpdate_v2)(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  UpdateResult result;
  const CUresult answer = update(exec, graph, &result);
  *out = {.result = result.result, .errorNode = result.node, .errorFromNode = nullptr};
  return answer;
}

CUVMM_SIM(cuGraphNodeSetEnabled)
(CUgraphExec exec_handle, CUgraphNode node_handle, unsigned enabled) {
  const Holding holding{graph_lock()};
  const auto exec = find_exec(exec_handle);
  Node* node = exec == nullptr ? nullptr : exec->find(node_handle);
  if (node == nullptr || !may_be_disabled(node->type())) return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuGraphNodeGetEnabled)
(CUgraphExec exec_handle, CUgraphNode node_handle, unsigned* enabled) {
  const Holding holding{graph_lock()};
  const auto exec = find_exec(exec_handle);
  const Node* node = exec == nullptr ? nullptr : exec->find(node_handle);
  if (node == nullptr || enabled == nullptr || !may_be_disabled(node->type())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *enabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
