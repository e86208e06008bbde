// SPDX-License-Identifier: Apache-2.0
// Replaces the results of cuGetProcAddress. The real one is called first; if it returns a function
// that is exactly one of the rows, the program gets that row's door instead. Rows are matched by
// address, not by name, so that a signature newer than the list is never mistaken for an older one:
// the program then gets an entry that only jumps to the function.
#include "hook/door_of.hpp"
#include "hook/unlisted.hpp"

namespace cuvmm::hook {
namespace {

void replace(Engine& engine, const char* name, int version, void** function) {
  if (function == nullptr || *function == nullptr || name == nullptr) return;
  void* door = door_for_function(engine, *function);
  *function = door != nullptr ? door : entry_of_unlisted(name, version, *function);
}

}  // namespace

CUVMM_HOOK(cuGetProcAddress_v2, const char* name, void** function, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult* status) {
  const CUresult answer = forward(name, function, version, flags, status);
  if (answer == CUDA_SUCCESS) replace(forward.engine(), name, version, function);
  return answer;
}

CUVMM_HOOK(cuGetProcAddress, const char* name, void** function, int version, cuuint64_t flags) {
  const CUresult answer = forward(name, function, version, flags);
  if (answer == CUDA_SUCCESS) replace(forward.engine(), name, version, function);
  return answer;
}

}  // namespace cuvmm::hook
