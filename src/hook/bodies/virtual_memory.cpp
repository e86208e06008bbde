// SPDX-License-Identifier: Apache-2.0
// Calls about the program's own mappings. In addresses that cuvmm has reserved, the program has no
// mapping, and natively there would be other memory or none, so the answer is INVALID_VALUE
// (measured for cuMemAlloc memory). The driver would change what backs cuvmm's memory.
#include "hook/door.hpp"

namespace cuvmm::hook {
namespace {

template <Call call, class... Arguments>
CUresult outside_ours(const Forward<call>& forward, CUdeviceptr address, size_t size,
                      Arguments... arguments) {
  if (!Engine::has_reserved(address, size)) return forward(arguments...);
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUVMM_HOOK(cuMemMap, CUdeviceptr address, size_t size, size_t offset,
           CUmemGenericAllocationHandle chunk, unsigned long long flags) {
  return outside_ours(forward, address, size, address, size, offset, chunk, flags);
}
CUVMM_HOOK(cuMemUnmap, CUdeviceptr address, size_t size) {
  return outside_ours(forward, address, size, address, size);
}
CUVMM_HOOK(cuMemSetAccess, CUdeviceptr address, size_t size, const CUmemAccessDesc* lines,
           size_t count) {
  return outside_ours(forward, address, size, address, size, lines, count);
}
CUVMM_HOOK(cuMemAddressFree, CUdeviceptr address, size_t size) {
  return outside_ours(forward, address, size, address, size);
}

}  // namespace cuvmm::hook
