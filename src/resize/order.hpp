// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream/per_thread_use.hpp"
#include "stream/stream_clock.hpp"

namespace cuvmm {

// Whether all the work that its context has been given is ordered before what `stream` is given
// next, or done. Work that is not could look at memory while the copy is put off, and what cannot
// be said for certain counts as running. Not while anything is captured, and with the context
// current.
bool is_ordered_after_everything(const Driver& driver, StreamClock& clock,
                                 const PerThreadUse& per_thread, const StreamState& stream);

}  // namespace cuvmm
