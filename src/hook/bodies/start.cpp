// SPDX-License-Identifier: Apache-2.0
#include "engine/trace_life.hpp"
#include "hook/door.hpp"

namespace cuvmm::hook {

CUVMM_HOOK(cuInit, unsigned flags) {
  const CUresult answer = forward(flags);
  if (answer == CUDA_SUCCESS) describe_devices_in_trace(forward.engine().driver());
  return answer;
}

}  // namespace cuvmm::hook
