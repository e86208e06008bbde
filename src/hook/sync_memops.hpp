// SPDX-License-Identifier: Apache-2.0
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: a copy or set that names such memory is complete when it
// returns. The driver refuses the attribute on mapped memory, so we keep it and wait ourselves.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "engine/engine.hpp"

namespace cuvmm::hook {

// False costs a relaxed load, and no other copy or set pays more.
inline bool some_memory_is_synchronous(const Engine& engine) {
  const Serving* const serving = engine.serving();
  return serving != nullptr && serving->memory.has_sync_memops();
}

// Whether a copy's or set's arguments name memory with SYNC_MEMOPS.
class NamesSynchronousMemory {
 public:
  explicit NamesSynchronousMemory(const Memory& memory) : memory_(memory) {}

  template <class... Arguments>
  bool operator()(Arguments... arguments) const {
    return (is_synchronous(arguments) || ...);
  }
  // Batches.
  template <class... Rest>
  bool operator()(CUdeviceptr* to, CUdeviceptr* from, size_t*, size_t count, Rest...) const {
    return any_of(to, count) || any_of(from, count);
  }
  template <class... Rest>
  bool operator()(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, Rest...) const {
    return any_of(copies, count);
  }

 private:
  bool is_synchronous(CUdeviceptr address) const;
  // Device memory may stand where the call says host.
  bool is_synchronous(const void* host) const {
    return is_synchronous(reinterpret_cast<CUdeviceptr>(host));
  }
  bool is_synchronous(const CUDA_MEMCPY2D* copy) const { return is_either_side(copy); }
  bool is_synchronous(const CUDA_MEMCPY3D* copy) const { return is_either_side(copy); }
  bool is_synchronous(const CUDA_MEMCPY3D_PEER* copy) const { return is_either_side(copy); }
  bool is_synchronous(const CUDA_MEMCPY3D_BATCH_OP& copy) const {
    return is_synchronous(copy.src) || is_synchronous(copy.dst);
  }
  bool is_synchronous(const CUmemcpy3DOperand& side) const {
    return side.type == CU_MEMCPY_OPERAND_TYPE_POINTER && is_synchronous(side.op.ptr.ptr);
  }
  // Sizes, values, handles.
  template <class Other>
  requires(std::is_arithmetic_v<Other> &&
           !std::is_same_v<Other, CUdeviceptr>) bool is_synchronous(Other) const {
    return false;
  }
  bool is_synchronous(CUarray) const { return false; }
  bool is_synchronous(CUcontext) const { return false; }
  bool is_synchronous(CUstream) const { return false; }

  template <class Copy>
  bool is_either_side(const Copy* copy) const {
    if (copy == nullptr) return false;  // the driver's to refuse
    return is_side(copy->srcMemoryType, copy->srcDevice, copy->srcHost) ||
           is_side(copy->dstMemoryType, copy->dstDevice, copy->dstHost);
  }
  bool is_side(CUmemorytype type, CUdeviceptr device, const void* host) const {
    if (type == CU_MEMORYTYPE_ARRAY) return false;
    return type == CU_MEMORYTYPE_HOST ? is_synchronous(host) : is_synchronous(device);
  }
  template <class Item>
  bool any_of(const Item* items, size_t count) const {
    for (size_t i = 0; items != nullptr && i < count; ++i) {
      if (is_synchronous(items[i])) return true;
    }
    return false;
  }

  const Memory& memory_;
};

// Makes one copy or set synchronous: constructed before the driver gets it, finished after.
class SynchronousCopy {
 public:
  SynchronousCopy(Engine& engine, CUstream stream, bool null_is_per_thread);

  // Waits for the stream of the call. A call that was captured has nothing to wait for.
  CUresult finish(CUresult answer) const;

 private:
  const Driver& driver_;
  CUstream stream_;
  // To wait for the legacy stream breaks a capture on any blocking stream, so none begins until
  // that wait is over. One that was live before has the driver refuse the copy.
  std::optional<Captures::HeldOff> no_capture_begins_;
};

inline CUstream stream_of_copy() {
  return nullptr;
}
template <class... Rest>
CUstream stream_of_copy(CUstream stream, Rest...) {
  return stream;
}
template <class First, class... Rest>
CUstream stream_of_copy(First, Rest... rest) {
  return stream_of_copy(rest...);
}

// The attribute says nothing of asynchronous copies and sets (measured).
constexpr bool is_asynchronous(std::string_view name) {
  return name.find("Async") != std::string_view::npos;
}

// `call` is the copy or set with these arguments.
template <class Call, class... Arguments>
[[gnu::noinline, gnu::cold]] CUresult call_synchronously_if_named(Engine& engine,
                                                                  bool null_is_per_thread,
                                                                  const Call& call,
                                                                  Arguments... arguments) {
  if (!NamesSynchronousMemory{engine.serving()->memory}(arguments...)) return call();
  const SynchronousCopy copy{engine, stream_of_copy(arguments...), null_is_per_thread};
  return copy.finish(call());
}

}  // namespace cuvmm::hook
