// SPDX-License-Identifier: Apache-2.0
// What is recorded once the driver has accepted work.
#include "hook/door.hpp"

namespace cuvmm::hook {

SmallGatePass::SmallGatePass(Gate& gate) : pass_(gate) {}
SmallGatePass::~SmallGatePass() = default;

void note_device_time(Engine& engine, Call call, Flavour flavour, CUstream stream,
                      std::uint64_t kind) {
  const StreamName name{.handle = stream, .null_is_per_thread = flavour == Flavour::PerThread};
  if (is_device_work(call)) {
    engine.time_lease().submitted(call, name, kind);
  } else {
    engine.time_lease().may_hold(name);
  }
}

void note_submitted(Engine& engine, Call call, Flavour flavour, CUstream stream,
                    bool names_stream) {
  engine.submission_epoch().leave();
  note_side(engine, flavour, stream, uses_one_stream(call, names_stream));
  const bool matters = is_device_work(call) || may_hold_stream(call);
  if (!matters || !engine.time_lease().counts()) return;
  note_device_time(engine, call, flavour, stream, static_cast<std::uint64_t>(call) + 1);
}

}  // namespace cuvmm::hook
