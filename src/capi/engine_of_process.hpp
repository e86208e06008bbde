// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"
#include "engine/publishing.hpp"

namespace cuvmm::capi {

// The engine behind every call of the C API; the first call creates it.
inline Result<Engine*> engine() {
  Engine* const running = Engine::get();
  if (running != nullptr) {
    ensure_published(*running);
    return running;
  }
  return Error{.kind = ErrorKind::DriverMissing, .doing = "start the engine"};
}

}  // namespace cuvmm::capi
