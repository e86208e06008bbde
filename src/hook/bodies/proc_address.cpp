// SPDX-License-Identifier: Apache-2.0
// The third door: what cuGetProcAddress answers. The real one is asked first; where it found a
// function that is exactly one of our rows, the program gets that row's door instead. By the
// function and not by its name, so that a signature newer than our list is never mistaken.
#include "hook/door_of.hpp"

namespace cuvmm::hook {

CUVMM_HOOK(cuGetProcAddress_v2, const char* symbol, void** function, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult* status) {
  const CUresult answer = forward(symbol, function, version, flags, status);
  if (answer == CUDA_SUCCESS && function != nullptr && *function != nullptr) {
    *function = door_for_function(forward.engine(), *function);
  }
  return answer;
}

CUVMM_HOOK(cuGetProcAddress, const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult answer = forward(symbol, function, version, flags);
  if (answer == CUDA_SUCCESS && function != nullptr && *function != nullptr) {
    *function = door_for_function(forward.engine(), *function);
  }
  return answer;
}

}  // namespace cuvmm::hook
