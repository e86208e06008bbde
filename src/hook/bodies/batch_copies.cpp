// SPDX-License-Identifier: Apache-2.0
// A batch of one linear copy is treated like any other linear copy, and may be deferred.
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

// Whether the driver is certain to accept the copy, and makes it in the stream's order.
bool is_one_plain_copy(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes,
                       size_t count, const CUmemcpyAttributes* attributes, const size_t* first,
                       size_t attribute_count, CUstream stream) {
  if (to == nullptr || from == nullptr || sizes == nullptr || count != 1) return false;
  if (attributes == nullptr || first == nullptr || attribute_count != 1 || *first != 0)
    return false;
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return false;
  }
  return attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && attributes->flags == 0;
}

}  // namespace

CUVMM_HOOK(cuMemcpyBatchAsync, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
           CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count, size_t* failed,
           CUstream stream) {
  if (is_one_plain_copy(to, from, sizes, count, attributes, first, attribute_count, stream)) {
    if (const Answer answer = try_defer_copy(forward, *to, *from, *sizes, stream)) return *answer;
  }
  return forward(to, from, sizes, count, attributes, first, attribute_count, failed, stream);
}

CUVMM_HOOK(cuMemcpyBatchAsync_v2, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
           CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count, CUstream stream) {
  if (is_one_plain_copy(to, from, sizes, count, attributes, first, attribute_count, stream)) {
    if (const Answer answer = try_defer_copy(forward, *to, *from, *sizes, stream)) return *answer;
  }
  return forward(to, from, sizes, count, attributes, first, attribute_count, stream);
}

}  // namespace cuvmm::hook
