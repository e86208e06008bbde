// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream/per_thread_use.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {

// Whether all work submitted to the stream's context is done, or ordered before the next work on
// `stream`. Any other work could observe memory while the copy is deferred; if in doubt, work
// counts as running. The context must be current, and no capture may be live.
bool is_ordered_after_everything(const Driver& driver, StreamClock& clock,
                                 const PerThreadUse& per_thread, const StreamState& stream);

}  // namespace cuvmm
