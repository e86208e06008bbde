// SPDX-License-Identifier: Apache-2.0
#include "pool/fences.hpp"

#include <algorithm>

#include "driver/current_context.hpp"
#include "stream/captures.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr const char* fencing = "fence a stream";
constexpr const char* waiting = "wait for a fence";

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

Fences::Fence::~Fence() {
  if (event == nullptr) return;
  const InContext in_context{driver, context};
  if (!in_context.ok()) return;  // the event ended with its context
  release_or_defer(Deferred::Handle,
                   [of = &driver, which = event] { return of->cuEventDestroy(which); });
}

CUresult Fences::Fence::wait() const {
  const InContext in_context{driver, context};
  return in_context.ok() ? driver.cuEventSynchronize(event) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool Fences::Fence::is_done() const {
  const InContext in_context{driver, context};
  return !in_context.ok() || driver.cuEventQuery(event) == CUDA_SUCCESS;
}

Result<CUcontext> Fences::context_of(CUstream stream) const {
  CUcontext context = nullptr;
  if (is_default(stream)) {
    context = current_context(driver_);
    if (context == nullptr) return Error::invalid(fencing, "no context is current");
    return context;
  }
  TRY(driver_.check(driver_.cuStreamGetCtx_v9020(stream, &context), fencing));
  return context;
}

Result<void> Fences::add(CUstream stream) {
  const CUcontext context = TRY(context_of(stream));
  const InContext in_context{driver_, context};
  if (!in_context.ok()) return Error::invalid(fencing, "its context has ended");
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  TRY(driver_.check(driver_.cuStreamIsCapturing(stream, &status), fencing));
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
    return Error::invalid(fencing,
                          "the stream is being captured: fence the one that runs the graph");
  }
  const RelaxedCapture relaxed{driver_};
  auto fence = std::make_shared<Fence>(driver_, context);
  TRY(driver_.check(driver_.cuEventCreate(&fence->event, CU_EVENT_DISABLE_TIMING), fencing));
  TRY(driver_.check(driver_.cuEventRecord(fence->event, stream), fencing));

  std::vector<Shared> looked_at;
  {
    const Holding holding{lock_};
    pending_.push_back(std::move(fence));
    if (pending_.size() >= look_at_) looked_at = pending_;
  }
  if (looked_at.empty()) return {};
  std::erase_if(looked_at, [](const Shared& one) { return !one->is_done(); });
  forget(looked_at);
  return {};
}

void Fences::forget(const std::vector<Shared>& over) {
  std::vector<Shared> ending;  // destroyed after the lock is released
  const Holding holding{lock_};
  std::erase_if(pending_, [&](const Shared& one) {
    if (std::find(over.begin(), over.end(), one) == over.end()) return false;
    ending.push_back(one);
    return true;
  });
  look_at_ = std::max<std::size_t>(16, pending_.size() * 2);
}

Result<void> Fences::wait() {
  std::vector<Shared> all;
  {
    const Holding holding{lock_};
    all = pending_;
  }
  if (all.empty()) return {};
  const RelaxedCapture relaxed{driver_};
  Result<void> result;
  std::vector<Shared> over;
  for (const Shared& fence : all) {
    const CUresult answer = fence->wait();
    if (says_nothing_runs(answer)) over.push_back(fence);
    if (!says_nothing_runs(answer) || is_sticky(answer)) result = driver_.check(answer, waiting);
  }
  forget(over);
  return result;
}

bool Fences::is_idle() const {
  std::vector<Shared> all;
  {
    const Holding holding{lock_};
    all = pending_;
  }
  if (all.empty()) return true;
  const RelaxedCapture relaxed{driver_};
  return std::all_of(all.begin(), all.end(), [](const Shared& fence) { return fence->is_done(); });
}

}  // namespace cuvmm
