// SPDX-License-Identifier: Apache-2.0
// Arrays, which the driver always serves. With a limit set, they are counted.
#include <algorithm>

#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

using Kind = NativeMemory::Kind;

NativeMemory::Name array_name(const void* array) {
  return {Kind::Array, reinterpret_cast<std::uint64_t>(array)};
}

// Bytes per channel. Block formats take less than a byte per texel, and count as one.
Size bytes_of(CUarray_format format) {
  switch (format) {
#define CUVMM_ARRAY_FORMAT(format, bytes) \
  case format:                            \
    return bytes;
#include "driver/array_formats.def"
#undef CUVMM_ARRAY_FORMAT
    default:
      return 1;
  }
}

Size bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  if ((array.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  return bytes_of(array.Format) * array.NumChannels * array.Width *
         std::max<Size>(array.Height, 1) * std::max<Size>(array.Depth, 1);
}

Size bytes_of_levels(CUDA_ARRAY3D_DESCRIPTOR level, unsigned count) {
  Size bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    bytes += bytes_of(level);
    level.Width = std::max<Size>(level.Width / 2, 1);
    level.Height /= 2;
    if ((level.Flags & CUDA_ARRAY3D_LAYERED) == 0) level.Depth /= 2;
  }
  return bytes;
}

template <Call call>
NativeMemory* native_memory(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr && serving->memory.native().counts() ? &serving->memory.native()
                                                                 : nullptr;
}

template <Call call>
CUresult count_array(const Forward<call>& forward, CUresult answer, void* const* array,
                     Size bytes) {
  NativeMemory* const memory = native_memory(forward);
  if (memory != nullptr && answer == CUDA_SUCCESS && bytes != 0) {
    memory->took(array_name(*array), bytes);
  }
  return answer;
}

template <Call call, class Handle>
CUresult end(const Forward<call>& forward, Handle handle, const NativeMemory::Name& name) {
  NativeMemory* const memory = native_memory(forward);
  if (memory == nullptr) return forward(handle);
  const auto counted = memory->gives_back(name);
  const CUresult answer = forward(handle);
  if (answer != CUDA_SUCCESS && counted) {
    memory->took(name, *counted);
  }
  return answer;
}

void* const* as_pointer(CUarray* array) {
  return reinterpret_cast<void* const*>(array);
}
void* const* as_pointer(CUmipmappedArray* array) {
  return reinterpret_cast<void* const*>(array);
}

}  // namespace

CUVMM_HOOK(cuArrayCreate_v2, CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  const CUresult answer = forward(array, wanted);
  if (answer != CUDA_SUCCESS) return answer;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = wanted->Width;
  shape.Height = wanted->Height;
  shape.Format = wanted->Format;
  shape.NumChannels = wanted->NumChannels;
  return count_array(forward, answer, as_pointer(array), bytes_of(shape));
}

CUVMM_HOOK(cuArray3DCreate_v2, CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  const CUresult answer = forward(array, wanted);
  if (answer != CUDA_SUCCESS) return answer;
  return count_array(forward, answer, as_pointer(array), bytes_of(*wanted));
}

CUVMM_HOOK(cuMipmappedArrayCreate, CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted,
           unsigned levels) {
  const CUresult answer = forward(array, wanted, levels);
  if (answer != CUDA_SUCCESS) return answer;
  return count_array(forward, answer, as_pointer(array), bytes_of_levels(*wanted, levels));
}

CUVMM_HOOK(cuArrayDestroy, CUarray array) {
  return end(forward, array, array_name(array));
}
CUVMM_HOOK(cuMipmappedArrayDestroy, CUmipmappedArray array) {
  return end(forward, array, array_name(array));
}

}  // namespace cuvmm::hook
