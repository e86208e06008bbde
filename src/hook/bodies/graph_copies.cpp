// SPDX-License-Identifier: Apache-2.0
// Copies of graphs, whose memory may be spilled (hook/near_copies.hpp).
#include "hook/near_copies.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

template <Call call, class... Arguments>
CUresult add(const Forward<call>& forward, const CUDA_MEMCPY3D* copy, Arguments... arguments) {
  try_to_move_near(forward, copy);
  return forward(arguments...);
}

template <Call call, class... Arguments>
CUresult update(const Forward<call>& forward, const CUDA_MEMCPY3D* copy, Arguments... arguments) {
  const CUresult answer = forward(arguments...);
  constexpr Duration five_seconds{5'000'000};
  if (answer != CUDA_ERROR_INVALID_VALUE || !move_near(forward, copy, five_seconds)) [[likely]]
    return answer;
  return forward(arguments...);
}

}  // namespace

CUVMM_HOOK(cuGraphAddMemcpyNode, CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
           size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  return add(forward, copy, node, graph, after, count, copy, context);
}
CUVMM_HOOK(cuGraphMemcpyNodeSetParams, CUgraphNode node, const CUDA_MEMCPY3D* copy) {
  return add(forward, copy, node, copy);
}
CUVMM_HOOK(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams* parameters) {
  return add(forward, copy_of(parameters), node, parameters);
}
CUVMM_HOOK(cuGraphExecMemcpyNodeSetParams, CUgraphExec graph, CUgraphNode node,
           const CUDA_MEMCPY3D* copy, CUcontext context) {
  return update(forward, copy, graph, node, copy, context);
}
CUVMM_HOOK(cuGraphExecNodeSetParams, CUgraphExec graph, CUgraphNode node,
           CUgraphNodeParams* parameters) {
  return update(forward, copy_of(parameters), graph, node, parameters);
}

}  // namespace cuvmm::hook
