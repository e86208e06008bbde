// SPDX-License-Identifier: Apache-2.0
// Two- and three-dimensional copies.
#include "sim/bodies.hpp"
#include "sim/copy_call.hpp"

namespace cuvmm::sim {
CUVMM_SIM(cuMemcpy2D_v2)(const CUDA_MEMCPY2D* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : call_copy(as_3d(*copy));
}
// A card's cuMemcpy2D accepts all pitches that this function accepts (measured).
CUVMM_SIM(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : call_copy(as_3d(*copy));
}
CUVMM_SIM(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : call_copy(as_3d(*copy), stream);
}
CUVMM_SIM(cuMemcpy3D_v2)(const CUDA_MEMCPY3D* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : call_copy(*copy);
}
CUVMM_SIM(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : call_copy(*copy, stream);
}

}  // namespace cuvmm::sim
