// SPDX-License-Identifier: Apache-2.0
// Copies and sets that name memory about which the driver knows too little, since cuvmm mapped it:
//   - another context's blocking memory. Without peer access, a program may copy to and from
//     another device's memory but not set it (measured), so a device is granted access before such
//     a copy names it. On the legacy stream, both contexts' legacy streams are ordered
//     (LegacyJoin).
//   - memory with SYNC_MEMOPS (SynchronousCopy).
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "hook/legacy_join.hpp"
#include "hook/named_memory.hpp"
#include "hook/sync_memops.hpp"

namespace cuvmm::hook {

// False, at the cost of two relaxed loads, while the process has one context and no memory has
// SYNC_MEMOPS.
inline bool copies_need_care(const Engine& engine) {
  const Serving* const serving = engine.serving();
  return serving != nullptr &&
         (serving->memory.contexts().has_several() || serving->memory.held().any_has_sync_memops());
}

// Whether the call adds a copy to a graph.
constexpr bool adds_copies(std::string_view name) {
  return name == "cuGraphAddMemcpyNode" || name == "cuGraphMemcpyNodeSetParams" ||
         name == "cuGraphExecMemcpyNodeSetParams" || name == "cuGraphAddNode" ||
         name == "cuGraphNodeSetParams" || name == "cuGraphExecNodeSetParams";
}

struct CopyTraits {
  bool is_set;
  bool is_submitted;  // false: it is added to a graph
  bool is_asynchronous;
  int extents;  // how many of the last size_t arguments are extents
};
constexpr CopyTraits copy_traits(std::string_view name) {
  const bool is_batch = name.find("Batch") != std::string_view::npos;
  return {.is_set = name.starts_with("cuMemset"),
          .is_submitted = !adds_copies(name),
          .is_asynchronous = is_asynchronous(name),
          .extents = is_batch                          ? 0
                     : name.starts_with("cuMemsetD2D") ? 2
                                                       : 1};
}

class NamedCopy {
 public:
  NamedCopy(Engine& engine, CopyTraits traits, StreamName stream);

  // Collects the devices that may execute the copy: those of the current context, the copy's stream
  // and the contexts that it names.
  template <class... Arguments>
  void is_carried_out_by(Arguments... arguments) {
    (add(arguments), ...);
  }
  // Call before may_name().
  template <class... Arguments>
  void has_extents(Arguments... arguments) {
    size_t last = 1;
    size_t before = 1;
    (note_extent(arguments, before, last), ...);
    is_empty_ |= (traits_.extents > 0 && last == 0) || (traits_.extents > 1 && before == 0);
  }
  // False if the driver would refuse the address natively, were the memory its own.
  bool may_name(CUdeviceptr address);

  // Call begin() before the driver call and finish() after it.
  CUresult begin();
  CUresult finish(CUresult answer) const;

 private:
  void add(CUcontext context);
  void add(CUstream stream);
  void add(const CUDA_MEMCPY3D_PEER* copy) {
    if (copy == nullptr) return;
    add(copy->srcContext);
    add(copy->dstContext);
  }
  // Not const, like the parameter of the hooks: a const one would lose to the template below.
  void add(CUgraphNodeParams* node) {
    if (node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY) add(node->memcpy.copyCtx);
  }
  template <class Other>
  void add(const Other&) {}
  static void note_extent(size_t extent, size_t& before, size_t& last) {
    before = last;
    last = extent;
  }
  void note_extent(const CUDA_MEMCPY2D* copy, size_t& /*before*/, size_t& /*last*/);
  void note_extent(const CUDA_MEMCPY3D* copy, size_t& /*before*/, size_t& /*last*/);
  void note_extent(const CUDA_MEMCPY3D_PEER* copy, size_t& /*before*/, size_t& /*last*/);
  template <class Other>
  static void note_extent(const Other&, size_t& /*before*/, size_t& /*last*/) {}

  Engine& engine_;
  const CopyTraits traits_;
  const StreamName stream_;
  const CUcontext current_;
  AccessSet devices_;
  LegacyJoin join_;
  bool is_empty_ = false;  // no work of any stream
  bool is_synchronous_ = false;
  std::optional<SynchronousCopy> synchronous_;
};

// Returns CUDA_SUCCESS and a copy to finish, or the error to return to the program.
template <class... Arguments>
[[gnu::noinline, gnu::cold]] CUresult begin_named_copy(std::unique_ptr<NamedCopy>& copy,
                                                       Engine& engine, CopyTraits traits,
                                                       StreamName stream, Arguments... arguments) {
  copy = std::make_unique<NamedCopy>(engine, traits, stream);
  copy->is_carried_out_by(arguments...);
  copy->has_extents(arguments...);
  const auto is_refused = [&](CUdeviceptr address) { return !copy->may_name(address); };
  if (NamedMemory{AddressVisitor{is_refused}}.any_of(arguments...)) return CUDA_ERROR_INVALID_VALUE;
  return copy->begin();
}

}  // namespace cuvmm::hook
