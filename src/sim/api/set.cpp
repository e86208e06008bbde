// SPDX-License-Identifier: Apache-2.0
#include "sim/bodies.hpp"
#include "sim/copy_call.hpp"

namespace cuvmm::sim {
namespace {

CUDA_MEMSET_NODE_PARAMS row(CUdeviceptr to, unsigned value, unsigned element_size, Size count) {
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = to;
  set.value = value;
  set.elementSize = element_size;
  set.width = count;
  set.height = 1;
  return set;
}

CUDA_MEMSET_NODE_PARAMS rows(CUdeviceptr to, Size pitch, unsigned value, unsigned element_size,
                             Size width, Size height) {
  CUDA_MEMSET_NODE_PARAMS set = row(to, value, element_size, width);
  set.pitch = pitch;
  set.height = height;
  return set;
}

}  // namespace

CUVMM_SIM(cuMemsetD8_v2)(CUdeviceptr to, unsigned char value, size_t count) {
  return call_set(row(to, value, 1, count));
}
CUVMM_SIM(cuMemsetD16_v2)(CUdeviceptr to, unsigned short value, size_t count) {
  return call_set(row(to, value, 2, count));
}
CUVMM_SIM(cuMemsetD32_v2)(CUdeviceptr to, unsigned value, size_t count) {
  return call_set(row(to, value, 4, count));
}
CUVMM_SIM(cuMemsetD2D8_v2)
(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return call_set(rows(to, pitch, value, 1, width, height));
}
CUVMM_SIM(cuMemsetD2D16_v2)
(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return call_set(rows(to, pitch, value, 2, width, height));
}
CUVMM_SIM(cuMemsetD2D32_v2)
(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return call_set(rows(to, pitch, value, 4, width, height));
}

CUVMM_SIM(cuMemsetD8Async)
(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return call_set(row(to, value, 1, count), stream);
}
CUVMM_SIM(cuMemsetD16Async)
(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return call_set(row(to, value, 2, count), stream);
}
CUVMM_SIM(cuMemsetD32Async)(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return call_set(row(to, value, 4, count), stream);
}
CUVMM_SIM(cuMemsetD2D8Async)
(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
  return call_set(rows(to, pitch, value, 1, width, height), stream);
}
CUVMM_SIM(cuMemsetD2D16Async)
(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
  return call_set(rows(to, pitch, value, 2, width, height), stream);
}
CUVMM_SIM(cuMemsetD2D32Async)
(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream) {
  return call_set(rows(to, pitch, value, 4, width, height), stream);
}

}  // namespace cuvmm::sim
