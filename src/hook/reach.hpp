// SPDX-License-Identifier: Apache-2.0
// Without peer access, a program may copy to and from another device's blocking memory but not set
// it (measured). Our memory is mapped, so a device is granted access before such a copy names it.
#pragma once

#include <string_view>

#include "hook/named_memory.hpp"
#include "hook/sync_memops.hpp"

namespace cuvmm::hook {

// False costs a relaxed load: blocking memory lies on one device only.
inline bool copies_may_cross(const Engine& engine) {
  const Serving* const serving = engine.serving();
  return serving != nullptr && serving->memory.has_several_devices();
}

// Whether the call puts a copy into a graph.
constexpr bool adds_copies(std::string_view name) {
  return name == "cuGraphAddMemcpyNode" || name == "cuGraphMemcpyNodeSetParams" ||
         name == "cuGraphExecMemcpyNodeSetParams" || name == "cuGraphAddNode" ||
         name == "cuGraphNodeSetParams" || name == "cuGraphExecNodeSetParams";
}

enum class Crossing : std::uint8_t { Copy, Set };

// The devices that may carry out a copy: those of the current context, of the copy's stream and of
// the contexts that it names.
class Copiers {
 public:
  explicit Copiers(Engine& engine);

  template <class... Arguments>
  void add_named_by(Arguments... arguments) {
    (add(arguments), ...);
  }
  // False where the driver would refuse the program's own memory.
  bool let_reach(CUdeviceptr address, Crossing crossing) const;

 private:
  void add(CUcontext context);
  void add(CUstream stream);
  void add(const CUDA_MEMCPY3D_PEER* copy) {
    if (copy == nullptr) return;
    add(copy->srcContext);
    add(copy->dstContext);
  }
  void add(const CUgraphNodeParams* node) {
    if (node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY) add(node->memcpy.copyCtx);
  }
  template <class Other>
  void add(const Other&) {}

  Engine& engine_;
  AccessSet devices_;
};

// CUDA_SUCCESS, or what the driver would answer.
template <class... Arguments>
[[gnu::noinline, gnu::cold]] CUresult let_reach_named_memory(Engine& engine, Crossing crossing,
                                                             Arguments... arguments) {
  Copiers copiers{engine};
  copiers.add_named_by(arguments...);
  const auto is_refused = [&](CUdeviceptr address) {
    return !copiers.let_reach(address, crossing);
  };
  return NamedMemory{AddressVisitor{is_refused}}.any_of(arguments...) ? CUDA_ERROR_INVALID_VALUE
                                                                      : CUDA_SUCCESS;
}

}  // namespace cuvmm::hook
