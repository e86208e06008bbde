// SPDX-License-Identifier: Apache-2.0
// Changing the work of an instance's nodes. They are named by the nodes of the original graph.
#include "sim/bodies.hpp"
#include "sim/graph_edit.hpp"
#include "sim/graph_exec.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

CUresult change(CUgraphExec exec, CUgraphNode node, CUresult made, NodeWork work) {
  return made == CUDA_SUCCESS ? change_node_of(exec, node, std::move(work)) : made;
}

}  // namespace

CUVMM_SIM(cuGraphExecKernelNodeSetParams_v2)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = kernel_work(asked, &work);
  return change(exec, node, made, std::move(work));
}
CUVMM_SIM(cuGraphExecKernelNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* asked) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*asked);
  return sim_cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

CUVMM_SIM(cuGraphExecMemcpyNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* asked, CUcontext context) {
  NodeWork work;
  const CUresult made = copy_work(asked, context, &work);
  return change(exec, node, made, std::move(work));
}

CUVMM_SIM(cuGraphExecMemsetNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* asked, CUcontext context) {
  NodeWork work;
  const CUresult made = set_work(asked, context, &work);
  return change(exec, node, made, std::move(work));
}

CUVMM_SIM(cuGraphExecHostNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = host_work(asked, &work);
  return change(exec, node, made, std::move(work));
}

CUVMM_SIM(cuGraphExecBatchMemOpNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = batch_work(asked, &work);
  return change(exec, node, made, std::move(work));
}

CUVMM_SIM(cuGraphExecEventRecordNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);
  return change(exec, node, made, std::move(work));
}

CUVMM_SIM(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);
  return change(exec, node, made, std::move(work));
}

// The new child graph must have the same topology as the old one.
CUVMM_SIM(cuGraphExecChildGraphNodeSetParams)
(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraph child_handle) {
  const Holding holding{graph_lock()};
  const auto exec = Process::get().graph_execs.find(exec_handle);
  const auto child = Process::get().graphs.find(child_handle);
  if (exec == nullptr || child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Node* node = exec->find(node_handle);
  if (node == nullptr || node->type() != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  const UpdateResult result = update_nodes(*node->work.child, *child);
  return result.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cuvmm::sim
