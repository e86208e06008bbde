// SPDX-License-Identifier: Apache-2.0
// Memory that is set to a value, prefetched or discarded.
#include "hook/events/words.hpp"

namespace cuvmm::hook {
namespace {

TraceRecord set(const Called& called, CUdeviceptr address, std::uint64_t size, std::uint64_t value,
                std::uint64_t stream) {
  return {.event = TraceEvent::Set,
          .detail = called.took_briefly(),
          .address = address,
          .size = size,
          .stream = stream,
          .other = value};
}

constexpr std::uint64_t discarded = ~std::uint64_t{0};

TraceRecord prefetch(const Called& called, CUdeviceptr address, std::uint64_t size,
                     std::uint64_t where, CUstream stream) {
  return {.event = TraceEvent::Prefetch,
          .detail = called.took_briefly(),
          .address = address,
          .size = size,
          .stream = called.stream(stream),
          .other = where};
}

}  // namespace

#define CUVMM_SET(symbol, symbol_async, type)                                                 \
  CUVMM_EVENT(symbol, CUdeviceptr address, type value, size_t count) {                        \
    return set(called, address, count * sizeof(type), value, called.own_stream());            \
  }                                                                                           \
  CUVMM_EVENT(symbol_async, CUdeviceptr address, type value, size_t count, CUstream stream) { \
    return set(called, address, count * sizeof(type), value, called.stream(stream));          \
  }
#define CUVMM_SET_2D(symbol, symbol_async, type)                                                  \
  CUVMM_EVENT(symbol, CUdeviceptr address, size_t, type value, size_t width, size_t height) {     \
    return set(called, address, width * height * sizeof(type), value, called.own_stream());       \
  }                                                                                               \
  CUVMM_EVENT(symbol_async, CUdeviceptr address, size_t, type value, size_t width, size_t height, \
              CUstream stream) {                                                                  \
    return set(called, address, width * height * sizeof(type), value, called.stream(stream));     \
  }
CUVMM_SET(cuMemsetD8_v2, cuMemsetD8Async, unsigned char)
CUVMM_SET(cuMemsetD16_v2, cuMemsetD16Async, unsigned short)
CUVMM_SET(cuMemsetD32_v2, cuMemsetD32Async, unsigned)
CUVMM_SET_2D(cuMemsetD2D8_v2, cuMemsetD2D8Async, unsigned char)
CUVMM_SET_2D(cuMemsetD2D16_v2, cuMemsetD2D16Async, unsigned short)
CUVMM_SET_2D(cuMemsetD2D32_v2, cuMemsetD2D32Async, unsigned)
#undef CUVMM_SET
#undef CUVMM_SET_2D

CUVMM_EVENT(cuMemPrefetchAsync, CUdeviceptr address, size_t size, CUdevice where, CUstream stream) {
  return prefetch(called, address, size, static_cast<std::uint32_t>(where), stream);
}

CUVMM_EVENT(cuMemPrefetchAsync_v2, CUdeviceptr address, size_t size, CUmemLocation where, unsigned,
            CUstream stream) {
  return prefetch(called, address, size, static_cast<std::uint32_t>(where.id), stream);
}

// One record for the batch: the first stretch, and the total bytes.
CUVMM_EVENT(cuMemPrefetchBatchAsync, CUdeviceptr* list, size_t* sizes, size_t count,
            CUmemLocation* where, size_t*, size_t places, unsigned long long, CUstream stream) {
  return prefetch(called, first(called, list, count), sum(called, sizes, count),
                  static_cast<std::uint32_t>(first(called, where, places).id), stream);
}

CUVMM_EVENT(cuMemDiscardBatchAsync, CUdeviceptr* list, size_t* sizes, size_t count,
            unsigned long long, CUstream stream) {
  return prefetch(called, first(called, list, count), sum(called, sizes, count), discarded, stream);
}

CUVMM_EVENT(cuMemDiscardAndPrefetchBatchAsync, CUdeviceptr* list, size_t* sizes, size_t count,
            CUmemLocation* where, size_t*, size_t places, unsigned long long, CUstream stream) {
  return prefetch(called, first(called, list, count), sum(called, sizes, count),
                  static_cast<std::uint32_t>(first(called, where, places).id), stream);
}

CUVMM_EVENT(cuStreamAttachMemAsync, CUstream stream, CUdeviceptr address, size_t size, unsigned) {
  return call(called, address, size, called.stream(stream));
}

}  // namespace cuvmm::hook
