// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/context.hpp"

namespace cuvmm::sim {

// Waits for the context's work, then removes everything that lives in it from the process: streams,
// events, modules, blocking memory. Chunks stay, as they belong to the program (measured).
void end_context(const std::shared_ptr<Context>& context);

// Called when the program has waited for all work of this context, or for the work up to these
// points. Pools then release memory above their release thresholds.
void note_synchronized(Context& context);
void note_synchronized(Context& context, const std::vector<Point>& work);

// Makes blocking memory of `owner` accessible to exactly those devices that may use it now.
void renew_peer_access(const std::shared_ptr<Context>& owner);

}  // namespace cuvmm::sim
