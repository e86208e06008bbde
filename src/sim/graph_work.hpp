// SPDX-License-Identifier: Apache-2.0
// Creates the work of nodes from the parameters that the program passes. Each returns CUDA_SUCCESS
// or the error for a call with these parameters. Except for child_work and captured_work, none may
// be called under graph_lock().
#pragma once

#include "sim/graph.hpp"

namespace cuvmm::sim {

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS* asked, NodeWork* work);
CUresult copy_work(const CUDA_MEMCPY3D* asked, CUcontext context, NodeWork* work);
CUresult set_work(const CUDA_MEMSET_NODE_PARAMS* asked, CUcontext context, NodeWork* work);
CUresult host_work(const CUDA_HOST_NODE_PARAMS* asked, NodeWork* work);
CUresult batch_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS* asked, NodeWork* work);
CUresult event_work(CUgraphNodeType type, CUevent event, NodeWork* work);
CUresult allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS* asked, NodeWork* work);
CUresult free_work(CUdeviceptr address, NodeWork* work);
NodeWork empty_work();
NodeWork captured_work(Operation operation);
// Uses a clone of the graph.
CUresult child_work(CUgraph graph, NodeWork* work);
NodeWork child_work(std::shared_ptr<Graph> graph);

// Converts version 1 of the kernel's parameters to version 2.
CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& asked);

}  // namespace cuvmm::sim
