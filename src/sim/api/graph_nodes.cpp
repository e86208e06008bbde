// SPDX-License-Identifier: Apache-2.0
// Calls for nodes of one type each: adding them, reading their parameters and changing them.
#include "sim/bodies.hpp"
#include "sim/event.hpp"
#include "sim/graph_edit.hpp"
#include "sim/graph_parameters.hpp"
#include "sim/graph_work.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// Reads the parameters of a node of this type with `tell(node)`.
template <class Tell>
CUresult tell_of(CUgraphNode handle, CUgraphNodeType type, const void* out, Tell&& tell) {
  const Holding holding{graph_lock()};
  const auto node = find_node(handle, type);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  tell(*node);
  return CUDA_SUCCESS;
}

CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count, CUresult made,
             NodeWork work) {
  if (made != CUDA_SUCCESS) return made;
  return add_node(out, graph, {.nodes = nodes, .count = count}, std::move(work));
}

CUresult change(CUgraphNode node, CUresult made, NodeWork work) {
  return made == CUDA_SUCCESS ? change_node(node, std::move(work)) : made;
}

template <class Parameters>
void give_parameters(const Node& node, Parameters* out) {
  const auto* given = std::get_if<Parameters>(&node.work.operation->parameters);
  if (given != nullptr) *out = *given;
}

CUcontext context_of(CUgraphNode handle) {
  const Holding holding{graph_lock()};
  const auto node = graph_nodes().find(handle);
  const auto context = node == nullptr ? nullptr : node->work.context.lock();
  return context == nullptr ? nullptr : context->handle();
}

}  // namespace

// Kernels

CUVMM_SIM(cuGraphAddKernelNode_v2)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_KERNEL_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = kernel_work(asked, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphAddKernelNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_KERNEL_NODE_PARAMS_v1* asked) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*asked);
  return sim_cuGraphAddKernelNode_v2(out, graph, nodes, count, &wide);
}
CUVMM_SIM(cuGraphKernelNodeGetParams_v2)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_KERNEL, out,
                 [out](Node& found) { *out = kernel_parameters(found); });
}
CUVMM_SIM(cuGraphKernelNodeGetParams)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_KERNEL, out,
                 [out](Node& found) { *out = narrow(kernel_parameters(found)); });
}
CUVMM_SIM(cuGraphKernelNodeSetParams_v2)(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = kernel_work(asked, &work);
  return change(node, made, std::move(work));
}
CUVMM_SIM(cuGraphKernelNodeSetParams)(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* asked) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*asked);
  return sim_cuGraphKernelNodeSetParams_v2(node, &wide);
}

// Copies and sets. A changed node keeps its context.

CUVMM_SIM(cuGraphAddMemcpyNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_MEMCPY3D* asked, CUcontext context) {
  NodeWork work;
  const CUresult made = copy_work(asked, context, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphMemcpyNodeGetParams)(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_MEMCPY, out,
                 [out](const Node& found) { give_parameters<CUDA_MEMCPY3D>(found, out); });
}
CUVMM_SIM(cuGraphMemcpyNodeSetParams)(CUgraphNode node, const CUDA_MEMCPY3D* asked) {
  NodeWork work;
  const CUresult made = copy_work(asked, context_of(node), &work);
  return change(node, made, std::move(work));
}

CUVMM_SIM(cuGraphAddMemsetNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_MEMSET_NODE_PARAMS* asked, CUcontext context) {
  NodeWork work;
  const CUresult made = set_work(asked, context, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphMemsetNodeGetParams)(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_MEMSET, out, [out](const Node& found) {
    give_parameters<CUDA_MEMSET_NODE_PARAMS>(found, out);
  });
}
CUVMM_SIM(cuGraphMemsetNodeSetParams)(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = set_work(asked, context_of(node), &work);
  return change(node, made, std::move(work));
}

// Host functions

CUVMM_SIM(cuGraphAddHostNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_HOST_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = host_work(asked, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphHostNodeGetParams)(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_HOST, out,
                 [out](const Node& found) { give_parameters<CUDA_HOST_NODE_PARAMS>(found, out); });
}
CUVMM_SIM(cuGraphHostNodeSetParams)(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = host_work(asked, &work);
  return change(node, made, std::move(work));
}

// Child graphs and empty nodes

CUVMM_SIM(cuGraphAddChildGraphNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count, CUgraph child) {
  return add_child(out, graph, {.nodes = nodes, .count = count}, child);
}
CUVMM_SIM(cuGraphChildGraphNodeGetGraph)(CUgraphNode node, CUgraph* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_GRAPH, out,
                 [out](const Node& found) { *out = found.work.child->handle(); });
}
CUVMM_SIM(cuGraphAddEmptyNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count) {
  return add(out, graph, nodes, count, CUDA_SUCCESS, empty_work());
}

// Events

CUVMM_SIM(cuGraphAddEventRecordNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphEventRecordNodeGetEvent)(CUgraphNode node, CUevent* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out,
                 [out](const Node& found) { *out = event_parameter(found); });
}
CUVMM_SIM(cuGraphEventRecordNodeSetEvent)(CUgraphNode node, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);
  return change(node, made, std::move(work));
}
CUVMM_SIM(cuGraphAddEventWaitNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphEventWaitNodeGetEvent)(CUgraphNode node, CUevent* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out,
                 [out](const Node& found) { *out = event_parameter(found); });
}
CUVMM_SIM(cuGraphEventWaitNodeSetEvent)(CUgraphNode node, CUevent event) {
  NodeWork work;
  const CUresult made = event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);
  return change(node, made, std::move(work));
}

// Value waits and writes

CUVMM_SIM(cuGraphAddBatchMemOpNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 const CUDA_BATCH_MEM_OP_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = batch_work(asked, &work);
  return add(out, graph, nodes, count, made, std::move(work));
}
CUVMM_SIM(cuGraphBatchMemOpNodeGetParams)(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return tell_of(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, out,
                 [out](const Node& found) { *out = batch_parameters(found); });
}
CUVMM_SIM(cuGraphBatchMemOpNodeSetParams)
(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* asked) {
  NodeWork work;
  const CUresult made = batch_work(asked, &work);
  return change(node, made, std::move(work));
}

}  // namespace cuvmm::sim
