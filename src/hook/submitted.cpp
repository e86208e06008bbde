// SPDX-License-Identifier: Apache-2.0
// What is recorded once the driver has accepted work.
#include "hook/door.hpp"

namespace cuvmm::hook {

void note_device_work(Engine& engine, Call call, Flavour flavour, CUstream stream,
                      std::uint64_t kind) {
  const StreamName name{.handle = stream, .null_is_per_thread = flavour == Flavour::PerThread};
  engine.time_lease().submitted(call, name, kind);
}

void note_submitted(Engine& engine, Call call, Flavour flavour, CUstream stream,
                    bool names_stream) {
  engine.submission_epoch().leave();
  note_side(engine, call, flavour, stream, names_stream);
  const bool counts = is_device_work(call) && engine.time_lease().counts();
  if (counts) note_device_work(engine, call, flavour, stream, static_cast<std::uint64_t>(call) + 1);
}

}  // namespace cuvmm::hook
