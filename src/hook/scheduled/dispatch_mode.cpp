// SPDX-License-Identifier: Apache-2.0
#include "hook/scheduled/dispatch_mode.hpp"

#include <algorithm>

#include "hook/named_memory.hpp"
#include "hook/scheduled/memory_of_call.hpp"
#include "hook/scheduled/queued_calls.hpp"

namespace cuvmm::hook {
namespace {

// Work on a capturing stream becomes a graph node, and work on the legacy stream would break other
// captures: such calls go directly to the driver, which decides.
bool is_in_capture(Engine& engine, const StreamState& stream) {
  if (!engine.captures().any()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult answer = engine.driver().cuStreamIsCapturing(stream.handle, &status);
  return answer != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// These calls only add memory or code, which no queued work can be using yet.
bool only_adds(std::string_view name) {
  constexpr auto adding = std::to_array<std::string_view>(
      {"cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuModuleLoad", "cuLibraryLoad",
       "cuCtxCreate", "cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate"});
  return name == "cuMemCreate" || name == "cuMemMap" || name == "cuMemSetAccess" ||
         std::any_of(adding.begin(), adding.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

// These calls do not touch memory, but queued work would run differently after them.
bool changes_how_work_runs(std::string_view name) {
  constexpr auto changing = std::to_array<std::string_view>(
      {"cuFuncSet", "cuKernelSet", "cuStreamSetAttribute", "cuStreamCopyAttributes", "cuCtxSet",
       "cuMemAdvise", "cuParamSet", "cuGraphKernelNodeCopyAttributes"});
  return name != "cuCtxSetCurrent" &&
         std::any_of(changing.begin(), changing.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

template <class Copy>
void settle_owners_of_sides(Engine& engine, const DispatchMode& mode, const Copy* copy) {
  const auto settle = [&](CUdeviceptr named) {
    settle_owners(engine, mode, named, 0);
    return false;
  };
  static_cast<void>(NamedMemory{AddressVisitor{settle}}.any_of(copy));
}

bool tells_what_is_used(Call call) {
  switch (call) {
    case Call::cuMemGetInfo_v2:
    case Call::cuMemPoolGetAttribute:
    case Call::cuMemPoolTrimTo:
    case Call::cuDeviceGetGraphMemAttribute:
    case Call::cuDeviceGraphMemTrim:
      return true;
    default:
      return false;
  }
}

}  // namespace

DispatchMode dispatch_mode(Engine& engine, StreamName name) {
  DispatchMode mode;
  mode.parts = engine.scheduling().parts();
  mode.client = mode.scheduler().client_of_this_thread();
  mode.stream = mode.parts->streams.find(name);
  if (mode.stream == nullptr) return mode;
  if (is_in_capture(engine, *mode.stream)) {
    mode.client = nullptr;
    return mode;
  }
  mode.context = current_context(engine.driver());
  mode.is_open_to_queue = mode.client != nullptr && mode.context != nullptr &&
                          mode.stream->kind != StreamKind::PerThread &&
                          !mode.scheduler().failures().is_any_context_lost();
  return mode;
}

void settle_owners(Engine& engine, const DispatchMode& mode, CUdeviceptr one, CUdeviceptr other) {
  if (mode.stream == nullptr || mode.stream->kind != StreamKind::Legacy) return;
  for (const CUdeviceptr named : {one, other}) {
    const CUcontext owner = owner_of(engine, named);
    if (owner != nullptr && owner != mode.stream->context) mode.scheduler().settle_context(owner);
  }
}

void settle_owners(Engine& engine, const DispatchMode& mode, const CUDA_MEMCPY2D* copy) {
  settle_owners_of_sides(engine, mode, copy);
}
void settle_owners(Engine& engine, const DispatchMode& mode, const CUDA_MEMCPY3D* copy) {
  settle_owners_of_sides(engine, mode, copy);
}

OrderedBy ordered_by(const Request& request) {
  return {.event = request.event, .use = request.event_use, .graph = request.graph};
}

void settle_before(const DispatchMode& mode, const OrderedBy& by) {
  Scheduler& scheduler = mode.scheduler();
  if (mode.stream != nullptr) {
    scheduler.settle_before_work_on(*mode.stream);
    // If a mark were recorded only after this call, the legacy rule could make it wait for the
    // call's work.
    if (mode.stream->kind != StreamKind::NonBlocking) scheduler.wait_for_marks();
  }
  if (by.use != EventUse::None) {
    scheduler.settle_event(by.event, by.use == EventUse::Records);
  }
  if (by.graph != nullptr) scheduler.settle_launches_of(by.graph);
}

void was_made_directly(const DispatchMode& mode, const OrderedBy& by, CUresult answer) {
  if (by.use == EventUse::Records && answer == CUDA_SUCCESS && mode.stream != nullptr) {
    mode.scheduler().event_recorded_directly(by.event, mode.stream->context);
  }
}

void settle_for(Engine& engine, Call call) {
  Scheduling::Parts& parts = *engine.scheduling().parts();
  const CallInfo& row = info(call);
  const bool could_tell =
      row.effect != Effect::Neutral ? !only_adds(row.name) : changes_how_work_runs(row.name);
  // A free takes effect for the program when it is called, so the answer must include queued frees.
  if (queued_frees.any() && tells_what_is_used(call)) parts.scheduler.settle_all();
  if (!could_tell) return;
  parts.scheduler.settle_all();
  // A mark recorded only after a call that submits work might wait for that work.
  if (has(row.effect, Effect::Submits)) parts.scheduler.wait_for_marks();
  // Function handles may be reused, and their attributes may change.
  if (has(row.effect, Effect::Destroys) || row.effect == Effect::Neutral) {
    parts.kernels.forget_all();
  }
}

}  // namespace cuvmm::hook
