// SPDX-License-Identifier: Apache-2.0
// Contexts that end, with everything served in them, and access to other contexts' memory.
#include <optional>

#include "base/log.hpp"
#include "driver/current_context.hpp"
#include "engine/publishing.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

template <Call call>
CUresult begin(const Forward<call>& forward, CUresult answer, const CUcontext* context) {
  if (answer != CUDA_SUCCESS || context == nullptr) return answer;
  ensure_published(forward.engine());
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
    serving->memory.work().context_ended(context);
    serving->memory.native().context_ended(context);
    serving->ipc.context_ended(context);
  }
  forward.engine().scheduling().context_ended(context);
}

CUcontext settled(Engine& engine, CUcontext context) {
  engine.scheduling().context_ends(context);
  return context;
}

// A context that a call may end, from before the call until after it. nullptr: no context.
template <Call call>
class EndingContext {
 public:
  EndingContext(const Forward<call>& forward, CUcontext context)
      : forward_(forward),
        context_(settled(forward.engine(), context)),
        listed_(forward.engine().ending_contexts(), context),
        device_time_(forward.engine().time_lease(), context) {}
  ~EndingContext() {
    if (is_over_) return;
    StreamClock* const clock = clock_of(forward_);
    if (captures_.has_value() && clock != nullptr) clock->context_stays(context_);
    forward_.engine().scheduling().context_stays(context_);
  }
  EndingContext(const EndingContext&) = delete;
  EndingContext& operator=(const EndingContext&) = delete;

  // Call once the call has been announced.
  void begin() {
    if (StreamClock* const clock = clock_of(forward_)) clock->context_ends(context_);
    captures_.emplace(forward_.engine().captures(), context_);
  }
  void is_over() {
    is_over_ = true;
    captures_->is_over();
    device_time_.is_over();
    end(forward_, context_);
  }

 private:
  const Forward<call>& forward_;
  const CUcontext context_;
  const EndingContexts::Ending listed_;
  TimeLease::Ending device_time_;
  std::optional<Captures::Ending> captures_;
  bool is_over_ = false;
};

// For a call that may or may not end the context; `is_over(answer)` tells.
template <Call call, class Argument, class IsOver>
CUresult end_by(const Forward<call>& forward, CUcontext context, Argument argument,
                IsOver is_over) {
  EndingContext<call> ending{forward, context};
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  ending.begin();
  const CUresult answer = forward.announced(argument);
  if (is_over(answer)) ending.is_over();
  return answer;
}

bool if_granted(CUresult answer) {
  return answer == CUDA_SUCCESS;
}

template <Call call>
CUresult destroy(const Forward<call>& forward, CUcontext context) {
  return end_by(forward, context, context, &if_granted);
}

// A context ends with the last of its uses, of which each cuCtxAttach adds one.
template <Call call>
CUresult detach(const Forward<call>& forward, CUcontext context) {
  const Driver& driver = forward.engine().driver();
  const unsigned long long id = context_id(driver, context);
  return end_by(forward, context, context, [&](CUresult answer) {
    return answer == CUDA_SUCCESS && (id == 0 || context_id(driver, context) != id);
  });
}

bool is_active(const Driver& driver, CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// A device's primary context, as of now.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {
    if (!is_active(driver_, device_)) return;
    if (driver_.cuDevicePrimaryCtxRetain(&handle_, device_) != CUDA_SUCCESS) return;
    id_ = context_id(driver_, handle_);
    driver_.cuDevicePrimaryCtxRelease(device_);
  }
  // nullptr if it was inactive.
  CUcontext handle() const { return handle_; }
  // Another thread may have made it active again, as a new context, which then waits until this one
  // is no longer listed.
  bool has_ended() const {
    return !is_active(driver_, device_) || (id_ != 0 && context_id(driver_, handle_) != id_);
  }

 private:
  const Driver& driver_;
  const CUdevice device_;
  CUcontext handle_ = nullptr;
  unsigned long long id_ = 0;
};

// Whether anything follows the ends of contexts.
template <Call call>
bool ends_matter(const Forward<call>& forward) {
  Engine& engine = forward.engine();
  return engine.serving() != nullptr || engine.scheduling().parts() != nullptr ||
         engine.captures().any();
}

// The last release ends a primary context.
template <Call call>
CUresult end_primary(const Forward<call>& forward, CUdevice device, bool always) {
  if (!ends_matter(forward)) return forward(device);
  const Driver& driver = forward.engine().driver();
  const PrimaryContext primary{driver, device};
  return end_by(forward, primary.handle(), device, [&](CUresult answer) {
    return answer == CUDA_SUCCESS && (always || primary.has_ended());
  });
}

// The context of the green one's streams. The program need not have asked for it.
template <Call call>
CUcontext context_of(const Forward<call>& forward, CUgreenCtx green) {
  Serving* const serving = forward.engine().serving();
  CUcontext context = serving != nullptr ? serving->memory.contexts().context_of(green) : nullptr;
  if (context != nullptr) return context;
  const CUresult answer = forward.engine().driver().cuCtxFromGreenCtx(&context, green);
  return answer == CUDA_SUCCESS ? context : nullptr;
}

// A green context holds the primary context of its device, perhaps as the last.
template <Call call>
CUresult end_green(const Forward<call>& forward, CUgreenCtx green) {
  if (!ends_matter(forward)) return forward(green);
  const CUcontext context = context_of(forward, green);
  if (context == nullptr) return forward(green);
  const Driver& driver = forward.engine().driver();
  const CUdevice device = device_of(driver, context);
  const PrimaryContext of_the_device{driver, device};
  EndingContext<call> ending{forward, context};
  EndingContext<call> primary{forward, of_the_device.handle()};
  if (const CUresult refused = forward.announce(); refused != CUDA_SUCCESS) return refused;
  ending.begin();
  primary.begin();
  const CUresult answer = forward.announced(green);
  if (answer != CUDA_SUCCESS) return answer;
  if (Serving* const serving = forward.engine().serving()) {
    serving->memory.native().belongs_to(context, of_the_device.handle());
  }
  ending.is_over();
  if (of_the_device.has_ended()) primary.is_over();
  return answer;
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
  return end_green(forward, green);
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
