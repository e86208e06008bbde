// SPDX-License-Identifier: Apache-2.0
// Contexts that end, with everything served in them, and access to other contexts' memory.
#include "base/log.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

template <Call call>
CUresult begin(const Forward<call>& forward, CUresult answer, const CUcontext* context) {
  if (answer != CUDA_SUCCESS || context == nullptr) return answer;
  forward.engine().ending_contexts().wait_until_ended(*context);
  if (Serving* serving = forward.engine().serving()) {
    serving->memory.contexts().began(*context);
    if (Resizer* const resizer = serving->resizer()) resizer->context_began(*context);
  }
  return answer;
}

template <Call call>
void end(const Forward<call>& forward, CUcontext context) {
  if (context == nullptr) return;
  Serving* serving = forward.engine().serving();
  if (serving != nullptr) {
    if (Resizer* const resizer = serving->resizer()) resizer->context_ended(context);
    serving->memory.contexts().ended(context);
    serving->ipc.context_ended(context);
  }
  forward.engine().scheduling().context_ended(context);
}

// For a call that may or may not end the context; `is_over(answer)` tells.
template <Call call, class Argument, class IsOver>
CUresult end_by(const Forward<call>& forward, CUcontext context, Argument argument,
                IsOver is_over) {
  Engine& engine = forward.engine();
  engine.scheduling().context_ends(context);
  const EndingContexts::Ending ending{engine.ending_contexts(), context};
  TimeLease::Ending device_time{engine.time_lease(), context};
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) {
    engine.scheduling().context_stays(context);
    return refused;
  }
  StreamClock* const clock = clock_of(forward);
  if (clock != nullptr) clock->context_ends(context);
  Captures::Ending captures{engine.captures(), context};
  const CUresult answer = forward.announced(argument);
  if (is_over(answer)) {
    captures.is_over();
    device_time.is_over();
    end(forward, context);
    return answer;
  }
  if (clock != nullptr) clock->context_stays(context);
  engine.scheduling().context_stays(context);
  return answer;
}

bool if_granted(CUresult answer) {
  return answer == CUDA_SUCCESS;
}

template <Call call>
CUresult destroy(const Forward<call>& forward, CUcontext context) {
  return end_by(forward, context, context, &if_granted);
}

// Tells contexts apart even if a new one has the handle of one that has ended. 0 if there is none,
// or if the driver is older than CUDA 12.
unsigned long long id_of(const Driver& driver, CUcontext context) {
  unsigned long long id = 0;
  if (context == nullptr || driver.cuCtxGetId(context, &id) != CUDA_SUCCESS) return 0;
  return id;
}

// A context ends with the last of its uses, of which each cuCtxAttach adds one.
template <Call call>
CUresult detach(const Forward<call>& forward, CUcontext context) {
  const Driver& driver = forward.engine().driver();
  const unsigned long long id = id_of(driver, context);
  return end_by(forward, context, context, [&](CUresult answer) {
    return answer == CUDA_SUCCESS && (id == 0 || id_of(driver, context) != id);
  });
}

bool is_active(const Driver& driver, CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// nullptr if the device's primary context is inactive.
CUcontext primary_context(const Driver& driver, CUdevice device) {
  if (!is_active(driver, device)) return nullptr;
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  driver.cuDevicePrimaryCtxRelease(device);
  return context;
}

// The last release ends a primary context.
template <Call call>
CUresult end_primary(const Forward<call>& forward, CUdevice device, bool always) {
  Engine& engine = forward.engine();
  const bool matters = engine.serving() != nullptr || engine.scheduling().parts() != nullptr ||
                       engine.captures().any();
  if (!matters) return forward(device);
  const Driver& driver = engine.driver();
  return end_by(forward, primary_context(driver, device), device, [&](CUresult answer) {
    return answer == CUDA_SUCCESS && (always || !is_active(driver, device));
  });
}

}  // namespace

CUVMM_HOOK(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device) {
  return begin(forward, forward(context, device), context);
}
CUVMM_HOOK(cuCtxCreate, CUcontext* context, unsigned flags, CUdevice device) {
  return begin(forward, forward(context, flags, device), context);
}
CUVMM_HOOK(cuCtxCreate_v2, CUcontext* context, unsigned flags, CUdevice device) {
  return begin(forward, forward(context, flags, device), context);
}
CUVMM_HOOK(cuCtxCreate_v3, CUcontext* context, CUexecAffinityParam* affinity, int count,
           unsigned flags, CUdevice device) {
  return begin(forward, forward(context, affinity, count, flags, device), context);
}
CUVMM_HOOK(cuCtxCreate_v4, CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
           CUdevice device) {
  return begin(forward, forward(context, parameters, flags, device), context);
}
CUVMM_HOOK(cuCtxFromGreenCtx, CUcontext* context, CUgreenCtx green) {
  const CUresult answer = begin(forward, forward(context, green), context);
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS) {
    serving->memory.contexts().green_context_began(green, *context);
  }
  return answer;
}
CUVMM_HOOK(cuGreenCtxDestroy, CUgreenCtx green) {
  Serving* serving = forward.engine().serving();
  const CUcontext context =
      serving != nullptr ? serving->memory.contexts().context_of(green) : nullptr;
  if (context == nullptr) return forward(green);
  return end_by(forward, context, green, &if_granted);
}

CUVMM_HOOK(cuCtxDestroy, CUcontext context) {
  return destroy(forward, context);
}
CUVMM_HOOK(cuCtxDestroy_v2, CUcontext context) {
  return destroy(forward, context);
}
CUVMM_HOOK(cuCtxDetach, CUcontext context) {
  return detach(forward, context);
}
CUVMM_HOOK(cuDevicePrimaryCtxReset, CUdevice device) {
  return end_primary(forward, device, true);
}
CUVMM_HOOK(cuDevicePrimaryCtxReset_v2, CUdevice device) {
  return end_primary(forward, device, true);
}
CUVMM_HOOK(cuDevicePrimaryCtxRelease, CUdevice device) {
  return end_primary(forward, device, false);
}
CUVMM_HOOK(cuDevicePrimaryCtxRelease_v2, CUdevice device) {
  return end_primary(forward, device, false);
}

CUVMM_HOOK(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags) {
  const CUresult answer = forward(peer, flags);
  Serving* serving = forward.engine().serving();
  if (serving == nullptr || answer != CUDA_SUCCESS) return answer;
  const Driver& driver = forward.engine().driver();
  const CUcontext current = current_context(driver);
  const auto begun = serving->memory.contexts().peer_access_begins(current, peer);
  const auto opened = begun.ok() ? serving->ipc.access_changed(peer) : begun;
  if (opened.ok()) return answer;
  if (begun.ok()) serving->memory.contexts().peer_access_never_began(current, peer);
  driver.cuCtxDisablePeerAccess(peer);
  return to_cuda(opened.error());
}

CUVMM_HOOK(cuCtxDisablePeerAccess, CUcontext peer) {
  const CUresult answer = forward(peer);
  Serving* serving = forward.engine().serving();
  if (serving != nullptr && answer == CUDA_SUCCESS) {
    serving->memory.contexts().peer_access_ends(current_context(forward.engine().driver()), peer);
    const auto taken = serving->ipc.access_changed(peer);
    if (!taken.ok()) CUVMM_LOG(Warning, "%s", taken.error().text().c_str());
  }
  return answer;
}

}  // namespace cuvmm::hook
