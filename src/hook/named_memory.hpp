// SPDX-License-Identifier: Apache-2.0
// Finds the memory that the arguments of a copy or set name.
#pragma once

#include <type_traits>

#include "driver/cuda.hpp"

namespace cuvmm::hook {

// Type-erased reference to a `visit(CUdeviceptr)`, so that one NamedMemory serves all.
class AddressVisitor {
 public:
  template <class Visit>
  explicit AddressVisitor(const Visit& visit)
      : visit_([](const void* with, CUdeviceptr address) {
          return (*static_cast<const Visit*>(with))(address);
        }),
        with_(&visit) {}
  bool operator()(CUdeviceptr address) const { return visit_(with_, address); }

 private:
  bool (*visit_)(const void* with, CUdeviceptr address);
  const void* with_;
};

// Visits each address, including host pointers, since device memory may be passed as host memory.
// Stops and returns true when the visitor does.
class NamedMemory {
 public:
  explicit NamedMemory(const AddressVisitor& visit) : visit_(visit) {}

  template <class... Arguments>
  bool any_of(Arguments... arguments) const {
    return (is(arguments) || ...);
  }
  // Batch calls.
  template <class... Rest>
  bool any_of(CUdeviceptr* to, CUdeviceptr* from, size_t*, size_t count, Rest...) const {
    return is_one_of(to, count) || is_one_of(from, count);
  }
  template <class... Rest>
  bool any_of(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, Rest...) const {
    return is_one_of(copies, count);
  }

 private:
  bool is(CUdeviceptr address) const { return visit_(address); }
  bool is(const void* host) const { return visit_(reinterpret_cast<CUdeviceptr>(host)); }
  bool is(const CUDA_MEMCPY2D* copy) const { return is_either_side(copy); }
  bool is(const CUDA_MEMCPY3D* copy) const { return is_either_side(copy); }
  bool is(const CUDA_MEMCPY3D_PEER* copy) const { return is_either_side(copy); }
  bool is(const CUDA_MEMCPY3D_BATCH_OP& copy) const { return is(copy.src) || is(copy.dst); }
  bool is(const CUmemcpy3DOperand& side) const {
    return side.type == CU_MEMCPY_OPERAND_TYPE_POINTER && visit_(side.op.ptr.ptr);
  }
  bool is(const CUgraphNodeParams* node) const {
    return node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
           is_either_side(&node->memcpy.copyParams);
  }
  // Sizes, values and handles name no memory.
  template <class Other>
  requires(std::is_arithmetic_v<Other> &&
           !std::is_same_v<Other, CUdeviceptr>) bool is(Other) const {
    return false;
  }
  bool is(CUarray) const { return false; }
  bool is(CUcontext) const { return false; }
  bool is(CUstream) const { return false; }
  bool is(CUgraph) const { return false; }
  bool is(CUgraphExec) const { return false; }
  bool is(CUgraphNode) const { return false; }
  bool is(CUgraphNode*) const { return false; }
  bool is(const CUgraphNode*) const { return false; }
  bool is(const CUgraphEdgeData*) const { return false; }

  template <class Copy>
  bool is_either_side(const Copy* copy) const {
    if (copy == nullptr) return false;  // the driver will refuse it
    return is_side(copy->srcMemoryType, copy->srcDevice, copy->srcHost) ||
           is_side(copy->dstMemoryType, copy->dstDevice, copy->dstHost);
  }
  bool is_side(CUmemorytype type, CUdeviceptr device, const void* host) const {
    if (type == CU_MEMORYTYPE_ARRAY) return false;
    return type == CU_MEMORYTYPE_HOST ? is(host) : visit_(device);
  }
  template <class Item>
  bool is_one_of(const Item* items, size_t count) const {
    for (size_t i = 0; items != nullptr && i < count; ++i) {
      if (is(items[i])) return true;
    }
    return false;
  }

  const AddressVisitor visit_;
};

}  // namespace cuvmm::hook
