// SPDX-License-Identifier: Apache-2.0
// The program's events in the nodes of graphs.
#pragma once

#include "hook/serve.hpp"

namespace cuvmm::hook {

// Call before the driver gives a graph's node these parameters. A node may record an event, or wait
// for one, whenever its graph runs.
template <Call call>
void note_event_of_node(const Forward<call>& forward, const CUgraphNodeParams* parameters) {
  if (parameters == nullptr) return;
  const bool records = parameters->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  if (!records && parameters->type != CU_GRAPH_NODE_TYPE_WAIT_EVENT) return;
  forward.engine().scheduling().graphs_use_events();
  StreamClock* const clock = clock_of(forward);
  if (records && clock != nullptr) clock->events().recorded_unseen(parameters->eventRecord.event);
}

}  // namespace cuvmm::hook
