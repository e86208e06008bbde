// SPDX-License-Identifier: Apache-2.0
// CUDA arrays, as far as copies need them. Mipmapped, sparse and multi-planar arrays have no
// bodies.
#include "sim/array.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"

namespace cuvmm::sim {
namespace {

CUresult create(const CUDA_ARRAY3D_DESCRIPTOR& asked, CUarray* array) {
  CUVMM_SIM_CONTEXT(context);
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  CUarray made = nullptr;
  const CUresult answer = Array::create(context, asked, &made);
  if (answer == CUDA_SUCCESS) *array = made;
  return answer;
}

// Surface and gather flags do not affect copies; layers and cube faces are slices.
constexpr unsigned simulated_flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP |
                                     CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER;

}  // namespace

CUVMM_SIM(cuArrayCreate_v2)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* asked) {
  if (array == nullptr || asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR same{};
  same.Width = asked->Width;
  same.Height = asked->Height;
  same.Format = asked->Format;
  same.NumChannels = asked->NumChannels;
  return create(same, array);
}

CUVMM_SIM(cuArray3DCreate_v2)(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* asked) {
  if (array == nullptr || asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((asked->Flags & ~simulated_flags) != 0) return lacking("cuArray3DCreate", "with these flags");
  return create(*asked, array);
}

CUVMM_SIM(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  CUVMM_SIM_CONTEXT(context);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = find_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& all = array->descriptor();
  *descriptor = {.Width = all.Width,
                 .Height = all.Height,
                 .Format = all.Format,
                 .NumChannels = all.NumChannels};
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  CUVMM_SIM_CONTEXT(context);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = find_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = array->descriptor();
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuArrayDestroy)(CUarray handle) {
  CUVMM_SIM_CONTEXT(context);
  if (const CUresult refused = refuse_unsafe_call(); refused != CUDA_SUCCESS) return refused;
  const auto array = find_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Waits for all work of the array's context (measured).
  if (const auto owner = array->context()) owner->wait_for_all_work();
  return remove_array(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace cuvmm::sim
