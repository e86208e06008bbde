// SPDX-License-Identifier: Apache-2.0
#include "hook/door.hpp"

namespace cuvmm::hook {

void note_refusal(Engine& engine, CUresult refusal) {
  Serving* serving = engine.serving();
  if (serving != nullptr && is_sticky(refusal)) serving->memory.work().context_is_lost();
}

bool should_retry(Engine& engine, CUresult refusal) {
  note_refusal(engine, refusal);
  Serving* serving = engine.serving();
  return serving != nullptr && refusal == CUDA_ERROR_OUT_OF_MEMORY && serving->memory.make_room();
}

}  // namespace cuvmm::hook
