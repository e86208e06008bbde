// SPDX-License-Identifier: Apache-2.0
// One-dimensional copies.
#include "sim/bodies.hpp"
#include "sim/copy_call.hpp"

namespace cuvmm::sim {
namespace {

CUdeviceptr address_of(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

CUDA_MEMCPY3D to_device(CUdeviceptr to, const void* from, Size size) {
  return linear_copy(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, address_of(from), size);
}
CUDA_MEMCPY3D to_host(void* to, CUdeviceptr from, Size size) {
  return linear_copy(CU_MEMORYTYPE_HOST, address_of(to), CU_MEMORYTYPE_DEVICE, from, size);
}
CUDA_MEMCPY3D within_device(CUdeviceptr to, CUdeviceptr from, Size size) {
  return linear_copy(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, size);
}
CUDA_MEMCPY3D anywhere(CUdeviceptr to, CUdeviceptr from, Size size) {
  return linear_copy(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, size);
}

CUDA_MEMCPY3D into_array(CUarray to, Size offset, CUDA_MEMCPY3D copy) {
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = to;
  copy.dstXInBytes = offset;
  return copy;
}
CUDA_MEMCPY3D out_of_array(CUarray from, Size offset, CUDA_MEMCPY3D copy) {
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = from;
  copy.srcXInBytes = offset;
  return copy;
}

}  // namespace

CUVMM_SIM(cuMemcpy)(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return call_copy(anywhere(to, from, size));
}
CUVMM_SIM(cuMemcpyHtoD_v2)(CUdeviceptr to, const void* from, size_t size) {
  return call_copy(to_device(to, from, size));
}
CUVMM_SIM(cuMemcpyDtoH_v2)(void* to, CUdeviceptr from, size_t size) {
  return call_copy(to_host(to, from, size));
}
CUVMM_SIM(cuMemcpyDtoD_v2)(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return call_copy(within_device(to, from, size));
}

CUVMM_SIM(cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return call_copy(anywhere(to, from, size), stream);
}
CUVMM_SIM(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return call_copy(to_device(to, from, size), stream);
}
CUVMM_SIM(cuMemcpyDtoHAsync_v2)(void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return call_copy(to_host(to, from, size), stream);
}
CUVMM_SIM(cuMemcpyDtoDAsync_v2)(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return call_copy(within_device(to, from, size), stream);
}

// Arrays ------------------------------------------------------------------------------------------

CUVMM_SIM(cuMemcpyDtoA_v2)(CUarray to, size_t offset, CUdeviceptr from, size_t size) {
  return call_copy(into_array(to, offset, within_device(0, from, size)));
}
CUVMM_SIM(cuMemcpyAtoD_v2)(CUdeviceptr to, CUarray from, size_t offset, size_t size) {
  return call_copy(out_of_array(from, offset, within_device(to, 0, size)));
}
CUVMM_SIM(cuMemcpyHtoA_v2)(CUarray to, size_t offset, const void* from, size_t size) {
  return call_copy(into_array(to, offset, to_device(0, from, size)));
}
CUVMM_SIM(cuMemcpyAtoH_v2)(void* to, CUarray from, size_t offset, size_t size) {
  return call_copy(out_of_array(from, offset, to_host(to, 0, size)));
}
CUVMM_SIM(cuMemcpyAtoA_v2)
(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size) {
  return call_copy(
      into_array(to, to_offset, out_of_array(from, from_offset, anywhere(0, 0, size))));
}
CUVMM_SIM(cuMemcpyHtoAAsync_v2)
(CUarray to, size_t offset, const void* from, size_t size, CUstream stream) {
  return call_copy(into_array(to, offset, to_device(0, from, size)), stream);
}
CUVMM_SIM(cuMemcpyAtoHAsync_v2)
(void* to, CUarray from, size_t offset, size_t size, CUstream stream) {
  return call_copy(out_of_array(from, offset, to_host(to, 0, size)), stream);
}

}  // namespace cuvmm::sim
