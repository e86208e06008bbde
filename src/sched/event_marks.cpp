// SPDX-License-Identifier: Apache-2.0
#include "sched/event_marks.hpp"

#include <algorithm>
#include <mutex>

#include "driver/current_context.hpp"
#include "sched/operation.hpp"

namespace cuvmm {

// The capture mode stays relaxed: calls issued on this thread belong to none of its captures.
void EventMarks::thread_begins() {
  begin_thread_();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.cuThreadExchangeStreamCaptureMode(&mode);
}

void EventMarks::make_current(CUcontext context) {
  driver_.cuCtxSetCurrent(context);
}

CUevent EventMarks::take(CUcontext context) {
  {
    const Holding holding{lock_};
    auto& spare = contexts_[context].spare;
    if (!spare.empty()) {
      CUevent event = spare.back();
      spare.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  return driver_.cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : nullptr;
}

void EventMarks::give_back(CUcontext context, CUevent event) {
  if (event == nullptr) return;
  const Holding holding{lock_};
  contexts_[context].spare.push_back(event);
}

// Recording an event on the legacy stream would break a live capture, and so might one on any other
// stream. CaptureBlock also keeps captures from beginning meanwhile.
CUevent EventMarks::record(const Batch& batch) {
  const Captures::CaptureBlock held_off{captures_};
  if (!held_off.none_is_seen()) return nullptr;
  if (batch.handle == CU_STREAM_LEGACY && legacy_.has_blocking_streams()) return nullptr;
  const InContext in_context{driver_, batch.context};
  if (!in_context.ok()) return nullptr;
  CUevent event = take(batch.context);
  if (event == nullptr) return nullptr;
  if (record(event, batch)) return event;
  driver_.cuEventDestroy(event);
  return nullptr;
}

// Skips streams that are ending: the call that ends one waits for its marks, but not indefinitely.
// On a legacy stream that orders others, an event would be a barrier that the program did not ask
// for: the calls before it may have given that stream no work.
bool EventMarks::record(CUevent event, const Batch& batch) const {
  const StreamTable::Staying staying{streams_};
  const LegacyBarrier::Alone alone{legacy_};
  const StreamState* stream = streams_.by_id(batch.stream);
  return stream != nullptr && !stream->ended.load() && !stream->context_ends.load() &&
         (stream->kind != StreamKind::Legacy || alone.is_alone()) &&
         driver_.cuEventRecord(event, batch.handle) == CUDA_SUCCESS;
}

bool EventMarks::mark_begin(Batch& batch) {
  batch.begin = record(batch);
  return batch.begin != nullptr;
}

bool EventMarks::mark_end(Batch& batch) {
  batch.end = record(batch);
  if (batch.end != nullptr) return true;
  give_back(batch.context, batch.begin);
  batch.begin = nullptr;
  return false;
}

float EventMarks::time_between(CUevent first, CUevent second) const {
  float milliseconds = 0;
  const CUresult answer = driver_.cuEventElapsedTime_v2000(&milliseconds, first, second);
  return answer == CUDA_SUCCESS ? std::max(milliseconds, 0.0F) : 0.0F;
}

std::optional<std::uint64_t> EventMarks::device_time(Batch& batch) {
  const RelaxedCapture relaxed{driver_};
  const CUresult answer = driver_.cuEventQuery(batch.end);
  if (answer == CUDA_ERROR_NOT_READY) return std::nullopt;
  if (answer != CUDA_SUCCESS) return 0;  // the context is lost, and its events with it
  CUevent last_end = nullptr;
  {
    const Holding holding{lock_};
    last_end = std::exchange(contexts_[batch.context].last_end, nullptr);
  }
  const CUevent began = batch.begin != nullptr ? batch.begin : last_end;
  float ran = began != nullptr ? time_between(began, batch.end) : 0.0F;
  if (last_end != nullptr && last_end != began) {
    ran = std::min(ran, time_between(last_end, batch.end));
  }
  give_back(batch.context, batch.begin);
  CUevent displaced = nullptr;
  {
    const Holding holding{lock_};
    displaced = std::exchange(contexts_[batch.context].last_end, batch.end);
  }
  give_back(batch.context, displaced);
  give_back(batch.context, last_end);
  return static_cast<std::uint64_t>(static_cast<double>(ran) * 1e6);
}

// Querying the legacy stream would break a capture, as a record would.
bool EventMarks::is_still_pending(const Request& request) {
  const Captures::CaptureBlock held_off{captures_};
  if (!held_off.none_is_seen()) return false;
  const InContext in_context{driver_, request.context};
  if (!in_context.ok()) return false;
  const CUresult answer = request.event_use == EventUse::Records
                              ? driver_.cuStreamQuery(request.stream->handle)
                              : driver_.cuEventQuery(request.event);
  return answer == CUDA_ERROR_NOT_READY;
}

void EventMarks::drop(Batch& batch) {
  if (batch.begin != nullptr) driver_.cuEventDestroy(batch.begin);
  driver_.cuEventDestroy(batch.end);
}

void EventMarks::context_ended(CUcontext context) {
  const Holding holding{lock_};
  contexts_.erase(context);
}

}  // namespace cuvmm
