// SPDX-License-Identifier: Apache-2.0
// Copies of graphs, where some of their memory is spilled. To the driver, a copy from or to the
// host is another kind of copy, which an update of an instance cannot turn into a copy within the
// device (measured). So that a program does not see this, spilled memory is moved to the device
// when a copy of it is added to a graph, and when an update is refused. One chunk on the host
// makes the whole copy another kind.
#pragma once

#include <array>

#include "engine/control.hpp"
#include "hook/record.hpp"

namespace cuvmm::hook {

// The range from the first byte to the last that one side of the copy touches.
struct CopiedSide {
  CUmemorytype type;
  CUdeviceptr address;
  Size x, y, z, pitch, height;

  AddressRange range(const CUDA_MEMCPY3D& copy) const {
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return {};
    // A pitch or height of 0 means the size that the copy itself needs.
    const Size row = pitch != 0 ? pitch : x + copy.WidthInBytes;
    const Size slice = row * (height != 0 ? height : y + copy.Height);
    const Size rows = copy.Height == 0 ? 0 : copy.Height - 1;
    const Size slices = copy.Depth == 0 ? 0 : copy.Depth - 1;
    return {.address = address + x + y * row + z * slice,
            .size = copy.WidthInBytes + rows * row + slices * slice};
  }
};

// Returns whether that moved any memory. Waits at most `within` for the program's work. For a
// thread inside the call.
template <Call call>
bool move_near(const Forward<call>& forward, const CUDA_MEMCPY3D* copy, Duration within) {
  const Serving* const serving = forward.engine().serving();
  Control* const control = forward.engine().control();
  if (copy == nullptr || serving == nullptr || control == nullptr) return false;
  if (control->spilled().physical_in_use == 0) [[likely]]
    return false;
  const CopiedSide from{copy->srcMemoryType, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                        copy->srcZ,          copy->srcPitch,  copy->srcHeight};
  const CopiedSide to{copy->dstMemoryType, copy->dstDevice, copy->dstXInBytes, copy->dstY,
                      copy->dstZ,          copy->dstPitch,  copy->dstHeight};
  const std::array ranges{from.range(*copy), to.range(*copy)};
  return control->move_near(ranges, within);
}

// For a copy that is added. The call succeeds without the move, and must not seem to hang if the
// program's work waits for the program.
template <Call call>
void try_to_move_near(const Forward<call>& forward, const CUDA_MEMCPY3D* copy) {
  constexpr Duration half_a_second{500'000};
  move_near(forward, copy, half_a_second);
}

inline const CUDA_MEMCPY3D* copy_of(const CUgraphNodeParams* node) {
  const bool is_copy = node != nullptr && node->type == CU_GRAPH_NODE_TYPE_MEMCPY;
  return is_copy ? &node->memcpy.copyParams : nullptr;
}

}  // namespace cuvmm::hook
