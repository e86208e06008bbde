// SPDX-License-Identifier: Apache-2.0
#include "driver/current_context.hpp"
#include "hook/door.hpp"

namespace cuvmm::hook {

void note_refusal(Engine& engine, CUresult refusal) {
  if (!is_sticky(refusal)) return;
  if (Serving* serving = engine.serving()) serving->memory.work().context_is_lost();
  if (Scheduling::Parts* scheduled = engine.scheduling().parts()) {
    scheduled->scheduler.failures().context_is_lost(current_context(engine.driver()));
  }
}

bool should_retry(Engine& engine, CUresult refusal) {
  note_refusal(engine, refusal);
  Serving* serving = engine.serving();
  return serving != nullptr && refusal == CUDA_ERROR_OUT_OF_MEMORY && serving->memory.make_room();
}

}  // namespace cuvmm::hook
