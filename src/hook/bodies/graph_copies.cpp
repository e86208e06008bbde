// SPDX-License-Identifier: Apache-2.0
// Graphs that copy spilled memory. To the driver, a copy from or to the host is another kind of
// copy than one within the device, and one chunk on the host makes the whole copy that kind. The
// kind is fixed when the graph is instantiated, and an update cannot change it (measured). So that
// a program does not see this, spilled memory that a graph copies moves to the device before the
// graph is instantiated, and when the driver refuses an update.
#include <algorithm>
#include <vector>

#include "engine/control.hpp"
#include "hook/node_events.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

using Ranges = std::vector<AddressRange>;

// From the first byte to the last that one side of the copy touches.
struct CopiedSide {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  Size x, y, z, pitch, height;

  AddressRange range(const CUDA_MEMCPY3D& copy) const {
    if (type == CU_MEMORYTYPE_ARRAY) return {};
    // The driver finds device memory behind a host pointer, too.
    const auto address = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
    // A pitch or height of 0 means the size that the copy itself needs.
    const Size row = pitch != 0 ? pitch : x + copy.WidthInBytes;
    const Size slice = row * (height != 0 ? height : y + copy.Height);
    const Size rows = copy.Height == 0 ? 0 : copy.Height - 1;
    const Size slices = copy.Depth == 0 ? 0 : copy.Depth - 1;
    return {.address = address + x + y * row + z * slice,
            .size = copy.WidthInBytes + rows * row + slices * slice};
  }
};

void add_copy(const CUDA_MEMCPY3D& copy, Ranges& ranges) {
  const CopiedSide from{copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes,
                        copy.srcY,          copy.srcZ,    copy.srcPitch,  copy.srcHeight};
  const CopiedSide to{copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes,
                      copy.dstY,          copy.dstZ,    copy.dstPitch,  copy.dstHeight};
  ranges.push_back(from.range(copy));
  ranges.push_back(to.range(copy));
}

// Adds all copies of the graph and of its child graphs.
void add_copies(const Driver& driver, CUgraph graph, Ranges& ranges) {
  std::size_t count = 0;
  if (graph == nullptr || driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  std::vector<CUgraphNode> nodes(count);
  if (driver.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  nodes.resize(std::min(count, nodes.size()));
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      CUDA_MEMCPY3D copy{};
      if (driver.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS) add_copy(copy, ranges);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_copies(driver, child, ranges);
      }
    }
  }
}

const CUDA_MEMCPY3D* copy_of(const CUgraphNodeParams* node) {
  const bool is_copy = node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY;
  return is_copy ? &node->memcpy.copyParams : nullptr;
}

// Where memory can be spilled, and some is; nullptr elsewhere.
template <Call call>
Control* control_of_spilled(const Forward<call>& forward) {
  Control* const control =
      forward.engine().serving() != nullptr ? forward.engine().control() : nullptr;
  if (control == nullptr || control->spilled().physical_in_use == 0) [[likely]]
    return nullptr;
  return control;
}

template <Call call, class... Arguments>
CUresult instantiate(const Forward<call>& forward, CUgraph graph, Arguments... arguments) {
  if (Control* const control = control_of_spilled(forward)) {
    Ranges ranges;
    add_copies(forward.engine().driver(), graph, ranges);
    if (!ranges.empty()) control->move_near(ranges, Control::Need::Preferred);
  }
  return forward(arguments...);
}

// `add_ranges` adds the memory that the new copies touch.
template <Call call, class AddRanges, class... Arguments>
CUresult update(const Forward<call>& forward, CUresult refusal, const AddRanges& add_ranges,
                Arguments... arguments) {
  const CUresult answer = forward(arguments...);
  Control* const control = answer == refusal ? control_of_spilled(forward) : nullptr;
  if (control == nullptr) return answer;
  Ranges ranges;
  add_ranges(ranges);
  if (ranges.empty() || !control->move_near(ranges, Control::Need::Required)) return answer;
  return forward(arguments...);
}

template <Call call, class... Arguments>
CUresult update_copy(const Forward<call>& forward, const CUDA_MEMCPY3D* copy,
                     Arguments... arguments) {
  return update(
      forward, CUDA_ERROR_INVALID_VALUE,
      [&](Ranges& ranges) {
        if (copy != nullptr) add_copy(*copy, ranges);
      },
      arguments...);
}

template <Call call, class... Arguments>
CUresult update_all(const Forward<call>& forward, CUgraph graph, Arguments... arguments) {
  return update(
      forward, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
      [&](Ranges& ranges) { add_copies(forward.engine().driver(), graph, ranges); }, arguments...);
}

}  // namespace

CUVMM_HOOK(cuGraphInstantiate, CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
           size_t size) {
  return instantiate(forward, graph, exec, graph, node, log, size);
}
CUVMM_HOOK(cuGraphInstantiate_v2, CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
           size_t size) {
  return instantiate(forward, graph, exec, graph, node, log, size);
}
CUVMM_HOOK(cuGraphInstantiateWithFlags, CUgraphExec* exec, CUgraph graph,
           unsigned long long flags) {
  return instantiate(forward, graph, exec, graph, flags);
}
CUVMM_HOOK(cuGraphInstantiateWithParams, CUgraphExec* exec, CUgraph graph,
           CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return instantiate(forward, graph, exec, graph, parameters);
}
CUVMM_HOOK(cuGraphExecMemcpyNodeSetParams, CUgraphExec exec, CUgraphNode node,
           const CUDA_MEMCPY3D* copy, CUcontext context) {
  return update_copy(forward, copy, exec, node, copy, context);
}
CUVMM_HOOK(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node,
           CUgraphNodeParams* parameters) {
  note_event_of_node(forward, parameters);
  return update_copy(forward, copy_of(parameters), exec, node, parameters);
}
CUVMM_HOOK(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode* node,
           CUgraphExecUpdateResult* result) {
  return update_all(forward, graph, exec, graph, node, result);
}
CUVMM_HOOK(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph,
           CUgraphExecUpdateResultInfo* result) {
  return update_all(forward, graph, exec, graph, result);
}

}  // namespace cuvmm::hook
