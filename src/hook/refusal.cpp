// SPDX-License-Identifier: Apache-2.0
#include "driver/current_context.hpp"
#include "hook/door.hpp"

namespace cuvmm::hook {

void note_refusal(Engine& engine, CUresult refusal, CUcontext context) {
  if (!is_sticky(refusal)) return;
  const CUcontext lost = context != nullptr ? context : current_context(engine.driver());
  if (Serving* serving = engine.serving()) serving->memory.work().context_is_lost(lost);
  if (Scheduling::Parts* scheduled = engine.scheduling().parts()) {
    scheduled->scheduler.failures().context_is_lost(lost);
  }
}

bool recover_from(Engine& engine, CUresult refusal, CUcontext context) {
  note_refusal(engine, refusal, context);
  Serving* serving = engine.serving();
  return serving != nullptr && refusal == CUDA_ERROR_OUT_OF_MEMORY && serving->memory.make_room();
}

bool recover_from(Engine& engine, CUresult refusal, CUstream stream) {
  const Scheduling::Parts* const scheduled = engine.scheduling().parts();
  const StreamState* const known =
      scheduled != nullptr ? scheduled->streams.known({.handle = stream}) : nullptr;
  return recover_from(engine, refusal, known != nullptr ? known->context : CUcontext{});
}

bool recover_from(Engine& engine, CUresult refusal, CUevent event) {
  const Scheduling::Parts* const scheduled = engine.scheduling().parts();
  return recover_from(engine, refusal,
                      scheduled != nullptr ? scheduled->scheduler.context_of(event) : nullptr);
}

}  // namespace cuvmm::hook
