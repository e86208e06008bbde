// SPDX-License-Identifier: Apache-2.0
// Events that a launch records by its attributes: when the kernel triggers them, or has begun.
// Neither says that the work before the launch is done, so from then on they prove nothing of it.
#include <span>

#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

CUevent event_recorded_by(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return attribute.value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return attribute.value.launchCompletionEvent.event;
    default:
      return nullptr;
  }
}

[[gnu::noinline, gnu::cold]] void note_events(StreamClock& clock, const CUlaunchConfig& config) {
  if (config.attrs == nullptr) return;  // the driver's to refuse
  for (const CUlaunchAttribute& attribute : std::span{config.attrs, config.numAttrs}) {
    const CUevent event = event_recorded_by(attribute);
    if (event != nullptr) clock.event_recorded_by_launch(event);
  }
}

}  // namespace

CUVMM_HOOK(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void** parameters,
           void** packed) {
  if (config != nullptr && config->numAttrs != 0) [[unlikely]] {
    if (StreamClock* const clock = clock_of(forward)) note_events(*clock, *config);
  }
  return forward(config, function, parameters, packed);
}

}  // namespace cuvmm::hook
