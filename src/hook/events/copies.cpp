// SPDX-License-Identifier: Apache-2.0
// Copies in one dimension.
#include "hook/events/copy.hpp"

namespace cuvmm::hook {
namespace {

std::uint64_t stream_of(const Called& called) {
  return called.own_stream();
}
std::uint64_t stream_of(const Called& called, CUstream stream) {
  return called.stream(stream);
}

}  // namespace

// The same copy in its synchronous form, on the default stream, and in its asynchronous form.
#define CUVMM_COPY(symbol, symbol_async, to, from, ...)                  \
  CUVMM_EVENT(symbol, __VA_ARGS__, size_t size) {                        \
    return copy(called, to, from, size, stream_of(called));              \
  }                                                                      \
  CUVMM_EVENT(symbol_async, __VA_ARGS__, size_t size, CUstream stream) { \
    return copy(called, to, from, size, stream_of(called, stream));      \
  }

CUVMM_COPY(cuMemcpy, cuMemcpyAsync, to, from, CUdeviceptr to, CUdeviceptr from)
CUVMM_COPY(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, to, number(from), CUdeviceptr to,
           const void* from)
CUVMM_COPY(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, number(to), from, void* to, CUdeviceptr from)
CUVMM_COPY(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, to, from, CUdeviceptr to, CUdeviceptr from)
CUVMM_COPY(cuMemcpyPeer, cuMemcpyPeerAsync, to, from, CUdeviceptr to, CUcontext, CUdeviceptr from,
           CUcontext)
CUVMM_COPY(cuMemcpyHtoA_v2, cuMemcpyHtoAAsync_v2, number(to), number(from), CUarray to, size_t,
           const void* from)
CUVMM_COPY(cuMemcpyAtoH_v2, cuMemcpyAtoHAsync_v2, number(to), number(from), void* to, CUarray from,
           size_t)
#undef CUVMM_COPY

CUVMM_EVENT(cuMemcpyDtoA_v2, CUarray to, size_t, CUdeviceptr from, size_t size) {
  return copy(called, number(to), from, size, called.own_stream());
}

CUVMM_EVENT(cuMemcpyAtoD_v2, CUdeviceptr to, CUarray from, size_t, size_t size) {
  return copy(called, to, number(from), size, called.own_stream());
}

CUVMM_EVENT(cuMemcpyAtoA_v2, CUarray to, size_t, CUarray from, size_t, size_t size) {
  return copy(called, number(to), number(from), size, called.own_stream());
}

// The signatures with 32-bit sizes.
CUVMM_EVENT(cuMemcpyHtoA, CUarray to, unsigned, const void* from, unsigned size) {
  return copy(called, number(to), number(from), size, called.own_stream());
}

CUVMM_EVENT(cuMemcpyAtoH, void* to, CUarray from, unsigned, unsigned size) {
  return copy(called, number(to), number(from), size, called.own_stream());
}

CUVMM_EVENT(cuMemcpyAtoA, CUarray to, unsigned, CUarray from, unsigned, unsigned size) {
  return copy(called, number(to), number(from), size, called.own_stream());
}

CUVMM_EVENT(cuMemcpyHtoAAsync, CUarray to, unsigned, const void* from, unsigned size,
            CUstream stream) {
  return copy(called, number(to), number(from), size, called.stream(stream));
}

CUVMM_EVENT(cuMemcpyAtoHAsync, void* to, CUarray from, unsigned, unsigned size, CUstream stream) {
  return copy(called, number(to), number(from), size, called.stream(stream));
}

// One record for the batch: the first copy's two ends, and the total bytes.
CUVMM_EVENT(cuMemcpyBatchAsync, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
            CUmemcpyAttributes*, size_t*, size_t, size_t*, CUstream stream) {
  return copy(called, first(called, to, count), first(called, from, count),
              sum(called, sizes, count), called.stream(stream));
}

CUVMM_EVENT(cuMemcpyBatchAsync_v2, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
            CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  return copy(called, first(called, to, count), first(called, from, count),
              sum(called, sizes, count), called.stream(stream));
}

}  // namespace cuvmm::hook
