// SPDX-License-Identifier: Apache-2.0
#include "hook/door.hpp"

namespace cuvmm::hook {

bool should_retry(Engine& engine, CUresult refusal) {
  Serving* serving = engine.serving();
  if (serving == nullptr) return false;
  if (is_sticky(refusal)) serving->memory.work().context_is_lost();
  return refusal == CUDA_ERROR_OUT_OF_MEMORY && serving->memory.make_room();
}

}  // namespace cuvmm::hook
