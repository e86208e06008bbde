// SPDX-License-Identifier: Apache-2.0
// Graphs that copy spilled memory. To the driver, a copy from or to the host is another kind of
// copy than one within the device, and one chunk on the host makes the whole copy that kind. The
// kind is fixed when the copy is added to its graph or changed there, and an update of an instance
// cannot change it (measured). So that a program does not see this, spilled memory that a graph
// copies moves to the device before the graph is instantiated, and when the driver refuses an
// update; and copies that may have been added while their memory was spilled are set again.
#include <algorithm>
#include <vector>

#include "base/clock.hpp"
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

Ranges ranges_of(const CUDA_MEMCPY3D& copy) {
  const CopiedSide from{copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes,
                        copy.srcY,          copy.srcZ,    copy.srcPitch,  copy.srcHeight};
  const CopiedSide to{copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes,
                      copy.dstY,          copy.dstZ,    copy.dstPitch,  copy.dstHeight};
  return {from.range(copy), to.range(copy)};
}

struct CopyNode {
  CUgraphNode node;
  CUDA_MEMCPY3D copy;
};
using CopyNodes = std::vector<CopyNode>;

// Memory of the program that may be spilled.
bool may_be_spilled(const Serving& serving, const AddressRange& range) {
  return serving.memory.find(range.address) || serving.program_chunks.contains(range.address);
}

// Adds the graph's copies of such memory, those of its child graphs included.
void add_copies(const Driver& driver, const Serving& serving, CUgraph graph, CopyNodes& copies) {
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
      if (driver.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) continue;
      const Ranges ranges = ranges_of(copy);
      const auto matters = [&](const AddressRange& one) { return may_be_spilled(serving, one); };
      if (std::any_of(ranges.begin(), ranges.end(), matters)) copies.push_back({node, copy});
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_copies(driver, serving, child, copies);
      }
    }
  }
}

const CUDA_MEMCPY3D* copy_of(const CUgraphNodeParams* node) {
  const bool is_copy = node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY;
  return is_copy ? &node->memcpy.copyParams : nullptr;
}

CUgraph child_of(const CUgraphNodeParams* node) {
  const bool is_child = node != nullptr && node->type == CU_GRAPH_NODE_TYPE_GRAPH;
  return is_child ? node->graph.graph : nullptr;
}

// Where memory was ever spilled; nullptr elsewhere.
template <Call call>
Control* control_of_spilled(const Forward<call>& forward) {
  Control* const control =
      forward.engine().serving() != nullptr ? forward.engine().control() : nullptr;
  return control != nullptr && control->has_spilled() ? control : nullptr;
}

// Makes the graph's copies the kind that they are natively: each is set again as it is, with its
// memory on the device. All memory moves in one stop if there is room, otherwise copy by copy, as
// long as there is time.
void settle_kinds(Engine& engine, Control& control, CUgraph graph, Control::Need need) {
  CopyNodes copies;
  add_copies(engine.driver(), *engine.serving(), graph, copies);
  if (copies.empty()) return;
  Ranges ranges;
  for (const CopyNode& one : copies) {
    const Ranges more = ranges_of(one.copy);
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  const std::uint64_t until = now_us() + Control::longest_move_near_us(need);
  const bool are_near = control.move_near(ranges, need);
  for (const CopyNode& one : copies) {
    if (!are_near && now_us() >= until) return control.rest_from_moving_near();
    if (!are_near && !control.move_near(ranges_of(one.copy), need)) continue;
    engine.driver().cuGraphMemcpyNodeSetParams(one.node, &one.copy);
  }
}

template <Call call, class... Arguments>
CUresult instantiate(const Forward<call>& forward, CUgraph graph, Arguments... arguments) {
  if (Control* const control = control_of_spilled(forward)) {
    settle_kinds(forward.engine(), *control, graph, Control::Need::Preferred);
  }
  return forward(arguments...);
}

template <Call call, class... Arguments>
CUresult update_copy(const Forward<call>& forward, const CUDA_MEMCPY3D* copy,
                     Arguments... arguments) {
  const CUresult answer = forward(arguments...);
  if (answer != CUDA_ERROR_INVALID_VALUE || copy == nullptr) return answer;
  Control* const control = control_of_spilled(forward);
  const bool is_near =
      control != nullptr && control->move_near(ranges_of(*copy), Control::Need::Required);
  return is_near ? forward(arguments...) : answer;
}

// The driver answers so to an update that would change the kind of a copy (measured).
bool may_be_about_kinds(CUgraphExecUpdateResult* result) {
  return result == nullptr || *result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}
bool may_be_about_kinds(CUgraphExecUpdateResultInfo* result) {
  return result == nullptr || may_be_about_kinds(&result->result);
}
template <class Other>
bool may_be_about_kinds(const Other&) {
  return true;
}

// `refusal`: the driver's answer to an update that it cannot make.
template <Call call, class... Arguments>
CUresult update_all(const Forward<call>& forward, CUresult refusal, CUgraph graph,
                    Arguments... arguments) {
  const CUresult answer = forward(arguments...);
  if (answer != refusal) return answer;
  Control* const control = control_of_spilled(forward);
  if (control == nullptr || !(may_be_about_kinds(arguments) && ...)) return answer;
  settle_kinds(forward.engine(), *control, graph, Control::Need::Required);
  return forward(arguments...);
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
  if (const CUgraph child = child_of(parameters)) {
    return update_all(forward, CUDA_ERROR_INVALID_VALUE, child, exec, node, parameters);
  }
  return update_copy(forward, copy_of(parameters), exec, node, parameters);
}
CUVMM_HOOK(cuGraphExecChildGraphNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return update_all(forward, CUDA_ERROR_INVALID_VALUE, child, exec, node, child);
}
CUVMM_HOOK(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode* node,
           CUgraphExecUpdateResult* result) {
  return update_all(forward, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, graph, exec, graph, node,
                    result);
}
CUVMM_HOOK(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph,
           CUgraphExecUpdateResultInfo* result) {
  return update_all(forward, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, graph, exec, graph, result);
}

}  // namespace cuvmm::hook
