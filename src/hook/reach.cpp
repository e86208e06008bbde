// SPDX-License-Identifier: Apache-2.0
#include "hook/reach.hpp"

#include "driver/current_context.hpp"

namespace cuvmm::hook {

Copiers::Copiers(Engine& engine) : engine_(engine) {
  add(current_context(engine.driver()));
}

void Copiers::add(CUcontext context) {
  if (context == nullptr) return;
  devices_ = devices_.with(device_of(engine_.driver(), context));
}

// A default stream is the current context's.
void Copiers::add(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return;
  const StreamState* const known = engine_.serving()->clock.table().find({.handle = stream});
  if (known != nullptr) devices_ = devices_.with(known->device);
}

bool Copiers::let_reach(CUdeviceptr address, Crossing crossing) const {
  Memory& memory = engine_.serving()->memory;
  const auto held = memory.find(address);
  if (!held) return true;
  if (crossing == Crossing::Copy) {
    memory.let_reach(*held, devices_);
    return true;
  }
  return memory.may_use(*held);
}

}  // namespace cuvmm::hook
