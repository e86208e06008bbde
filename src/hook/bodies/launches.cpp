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
      // The launch may become a graph node, which records the event whenever the graph runs.
      if (forward.engine().captures().any()) clock.events().recorded_unseen(event);
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
  StreamClock* const clock = clock_of(forward);
  if (event != nullptr && clock != nullptr) clock->events().recorded_unseen(event);
  return forward(node, attribute, value);
}

}  // namespace cuvmm::hook
