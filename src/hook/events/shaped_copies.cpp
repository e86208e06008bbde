// SPDX-License-Identifier: Apache-2.0
// Copies in two and three dimensions, whose two ends are in a struct.
#include "hook/events/copy.hpp"

namespace cuvmm::hook {
namespace {

// One end of a copy, from the member that its memory type selects.
std::uint64_t end_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return number(host);
    case CU_MEMORYTYPE_ARRAY:
      return number(array);
    default:
      return device;
  }
}

template <class Copy>
std::uint64_t to(const Copy& copy) {
  return end_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray);
}
template <class Copy>
std::uint64_t from(const Copy& copy) {
  return end_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray);
}

std::uint64_t size_of(const CUDA_MEMCPY2D& copy) {
  return std::uint64_t{copy.WidthInBytes} * copy.Height;
}
std::uint64_t size_of(const CUDA_MEMCPY3D& copy) {
  return std::uint64_t{copy.WidthInBytes} * copy.Height * copy.Depth;
}
std::uint64_t size_of(const CUDA_MEMCPY3D_PEER& copy) {
  return std::uint64_t{copy.WidthInBytes} * copy.Height * copy.Depth;
}

template <class Copy>
TraceRecord shaped(const Called& called, const Copy* where, std::uint64_t stream) {
  const Copy one = given(called, where);
  return copy(called, to(one), from(one), size_of(one), stream);
}

std::uint64_t end_of(const CUmemcpy3DOperand& operand) {
  return operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? number(operand.op.array.array)
                                                      : operand.op.ptr.ptr;
}

TraceRecord batch(const Called& called, std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* list,
                  CUstream stream) {
  std::uint64_t size = 0;
  for (std::size_t i = 0; called.granted() && list != nullptr && i < count; ++i) {
    const CUextent3D& extent = list[i].extent;
    size += std::uint64_t{extent.width} * extent.height * extent.depth;
  }
  const auto one = first(called, list, count);
  return copy(called, end_of(one.dst), end_of(one.src), size, called.stream(stream));
}

}  // namespace

CUVMM_EVENT(cuMemcpy2D_v2, const CUDA_MEMCPY2D* one) {
  return shaped(called, one, called.own_stream());
}
CUVMM_EVENT(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D* one) {
  return shaped(called, one, called.own_stream());
}
CUVMM_EVENT(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D* one, CUstream stream) {
  return shaped(called, one, called.stream(stream));
}
CUVMM_EVENT(cuMemcpy3D_v2, const CUDA_MEMCPY3D* one) {
  return shaped(called, one, called.own_stream());
}
CUVMM_EVENT(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D* one, CUstream stream) {
  return shaped(called, one, called.stream(stream));
}
CUVMM_EVENT(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER* one) {
  return shaped(called, one, called.own_stream());
}
CUVMM_EVENT(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER* one, CUstream stream) {
  return shaped(called, one, called.stream(stream));
}

// Extents of arrays count elements, so events that involve arrays carry no byte count.
CUVMM_EVENT(cuMemcpy3DBatchAsync, size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t*,
            unsigned long long, CUstream stream) {
  return batch(called, count, list, stream);
}
CUVMM_EVENT(cuMemcpy3DBatchAsync_v2, size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long,
            CUstream stream) {
  return batch(called, count, list, stream);
}

}  // namespace cuvmm::hook
