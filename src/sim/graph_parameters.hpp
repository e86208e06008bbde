// SPDX-License-Identifier: Apache-2.0
// The parameters of nodes. Call under graph_lock(), for nodes of the matching type.
#pragma once

#include "sim/graph.hpp"

namespace cuvmm::sim {

// The returned pointers are valid until the node is changed or destroyed.
CUDA_KERNEL_NODE_PARAMS kernel_parameters(Node& node);
CUDA_KERNEL_NODE_PARAMS_v1 narrow(const CUDA_KERNEL_NODE_PARAMS& wide);
CUDA_BATCH_MEM_OP_NODE_PARAMS batch_parameters(const Node& node);
CUevent event_parameter(const Node& node);

}  // namespace cuvmm::sim
