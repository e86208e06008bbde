// SPDX-License-Identifier: Apache-2.0
// Nodes of any type through one call.
#include "sim/bodies.hpp"
#include "sim/entry.hpp"
#include "sim/graph_edit.hpp"
#include "sim/graph_work.hpp"

namespace cuvmm::sim {
namespace {

CUDA_KERNEL_NODE_PARAMS kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3& asked) {
  return {.func = asked.func,
          .gridDimX = asked.gridDimX,
          .gridDimY = asked.gridDimY,
          .gridDimZ = asked.gridDimZ,
          .blockDimX = asked.blockDimX,
          .blockDimY = asked.blockDimY,
          .blockDimZ = asked.blockDimZ,
          .sharedMemBytes = asked.sharedMemBytes,
          .kernelParams = asked.kernelParams,
          .extra = asked.extra,
          .kern = asked.kern,
          .ctx = asked.ctx};
}

CUresult set_of(const CUDA_MEMSET_NODE_PARAMS_v2& asked, NodeWork* work) {
  const CUDA_MEMSET_NODE_PARAMS set{.dst = asked.dst,
                                    .pitch = asked.pitch,
                                    .value = asked.value,
                                    .elementSize = asked.elementSize,
                                    .width = asked.width,
                                    .height = asked.height};
  return set_work(&set, asked.ctx, work);
}

CUresult allocation_of(CUDA_MEM_ALLOC_NODE_PARAMS_v2& asked, NodeWork* work) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{.poolProps = asked.poolProps,
                                        .accessDescs = asked.accessDescs,
                                        .accessDescCount = asked.accessDescCount,
                                        .bytesize = asked.bytesize};
  const CUresult made = allocation_work(&allocation, work);
  if (made == CUDA_SUCCESS) asked.dptr = allocation.dptr;
  return made;
}

// For all node types except child graphs.
CUresult work_of(const char* symbol, CUgraphNodeParams& asked, NodeWork* work) {
  switch (asked.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(asked.kernel);
      return kernel_work(&kernel, work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_work(&asked.memcpy.copyParams, asked.memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return set_of(asked.memset, work);
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host{.fn = asked.host.fn, .userData = asked.host.userData};
      return host_work(&host, work);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *work = empty_work();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work(asked.type, asked.eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work(asked.type, asked.eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return allocation_of(asked.alloc, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_work(asked.free.dptr, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch{.ctx = asked.memOp.ctx,
                                                .count = asked.memOp.count,
                                                .paramArray = asked.memOp.paramArray,
                                                .flags = asked.memOp.flags};
      return batch_work(&batch, work);
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return lacking(symbol, "has no nodes for external semaphores");
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return lacking(symbol, "has no conditional nodes");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult add(CUgraphNode* out, CUgraph graph, const Dependencies& dependencies,
             CUgraphNodeParams* asked) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (asked->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    if (asked->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
      return lacking("cuGraphAddNode", "does not move graphs into others, only copies them");
    }
    return add_child(out, graph, dependencies, asked->graph.graph);
  }
  NodeWork work;
  const CUresult made = work_of("cuGraphAddNode", *asked, &work);
  return made == CUDA_SUCCESS ? add_node(out, graph, dependencies, std::move(work)) : made;
}

bool may_change(CUgraphNodeType type) {
  return type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
         type != CU_GRAPH_NODE_TYPE_EMPTY && type != CU_GRAPH_NODE_TYPE_GRAPH;
}

}  // namespace

CUVMM_SIM(cuGraphAddNode)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, size_t count,
 CUgraphNodeParams* asked) {
  return add(out, graph, {.nodes = nodes, .count = count}, asked);
}

CUVMM_SIM(cuGraphAddNode_v2)
(CUgraphNode* out, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
 size_t count, CUgraphNodeParams* asked) {
  return add(out, graph, {.nodes = nodes, .edges = edges, .count = count}, asked);
}

CUVMM_SIM(cuGraphNodeSetParams)(CUgraphNode node, CUgraphNodeParams* asked) {
  if (asked == nullptr || !may_change(asked->type)) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  const CUresult made = work_of("cuGraphNodeSetParams", *asked, &work);
  return made == CUDA_SUCCESS ? change_node(node, std::move(work)) : made;
}

CUVMM_SIM(cuGraphExecNodeSetParams)(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* asked) {
  if (asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (asked->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return sim_cuGraphExecChildGraphNodeSetParams(exec, node, asked->graph.graph);
  }
  if (!may_change(asked->type)) return CUDA_ERROR_INVALID_VALUE;
  NodeWork work;
  const CUresult made = work_of("cuGraphExecNodeSetParams", *asked, &work);
  return made == CUDA_SUCCESS ? change_node_of(exec, node, std::move(work)) : made;
}

}  // namespace cuvmm::sim
