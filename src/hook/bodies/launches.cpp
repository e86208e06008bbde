// SPDX-License-Identifier: Apache-2.0
// Launch attributes that change what an event means.
#include <deque>
#include <span>

#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

// These events are recorded when the kernel triggers them or has begun. Neither proves that the
// work before the launch is done, so such an event proves nothing from then on.
CUevent event_recorded_by(CUlaunchAttributeID attribute, const CUlaunchAttributeValue& value) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return value.launchCompletionEvent.event;
    default:
      return nullptr;
  }
}

// The graph records the event whenever it runs.
void note_event_of_a_graph(Engine& engine, StreamClock* clock, CUevent event) {
  engine.scheduling().graphs_use_events();
  if (clock != nullptr) clock->events().recorded_unseen(event);
}

template <Call call, class... Arguments>
[[gnu::noinline, gnu::cold]] CUresult launch_with_attributes(const Forward<call>& forward,
                                                             StreamClock& clock,
                                                             const CUlaunchConfig* config,
                                                             Arguments... arguments) {
  std::deque<EventPlaces::Recording> recordings;  // never done_at(): they only invalidate
  if (config->attrs != nullptr) {                 // else the driver refuses the call
    for (const CUlaunchAttribute& attribute : std::span{config->attrs, config->numAttrs}) {
      const CUevent event = event_recorded_by(attribute.id, attribute.value);
      if (event == nullptr) continue;
      recordings.emplace_back(clock.events(), event);
      // The launch may become a node of a graph.
      Engine& engine = forward.engine();
      if (engine.captures().any()) note_event_of_a_graph(engine, &clock, event);
    }
  }
  return forward(config, arguments...);
}

}  // namespace

CUVMM_HOOK(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void** parameters,
           void** packed) {
  if (config != nullptr && config->numAttrs != 0) [[unlikely]] {
    if (StreamClock* const clock = clock_of(forward)) {
      return launch_with_attributes(forward, *clock, config, function, parameters, packed);
    }
  }
  return forward(config, function, parameters, packed);
}

CUVMM_HOOK(cuGraphKernelNodeSetAttribute, CUgraphNode node, CUkernelNodeAttrID attribute,
           const CUkernelNodeAttrValue* value) {
  const CUevent event = value != nullptr ? event_recorded_by(attribute, *value) : nullptr;
  if (event != nullptr) note_event_of_a_graph(forward.engine(), clock_of(forward), event);
  return forward(node, attribute, value);
}

}  // namespace cuvmm::hook
