// SPDX-License-Identifier: Apache-2.0
#include "hook/record.hpp"

#include <atomic>

#include "driver/current_context.hpp"
#include "hook/whereabouts.hpp"
#include "trace/refusals.hpp"
#include "trace/stacks/sampling.hpp"

namespace cuvmm::hook {
namespace {

// Until a capture has begun, work need not be checked for capture.
constinit std::atomic<bool> captures_were_begun{false};

bool is_work(TraceEvent event) {
  switch (event) {
    case TraceEvent::Launch:
    case TraceEvent::Copy:
    case TraceEvent::Set:
    case TraceEvent::Prefetch:
    case TraceEvent::ValueWait:
    case TraceEvent::ValueWrite:
    case TraceEvent::EventRecord:
    case TraceEvent::StreamWait:
    case TraceEvent::GraphLaunch:
    case TraceEvent::Allocate:
    case TraceEvent::Free:
      return true;
    default:
      return false;
  }
}

// Events that begin something carry the time at which the call returned, all others the time at
// which it began.
bool begins_something(TraceEvent event) {
  switch (event) {
    case TraceEvent::Allocate:
    case TraceEvent::Import:
    case TraceEvent::Reserve:
    case TraceEvent::Create:
    case TraceEvent::Map:
    case TraceEvent::PoolCreate:
    case TraceEvent::ContextCreate:
    case TraceEvent::StreamCreate:
    case TraceEvent::EventCreate:
      return true;
    default:
      return false;
  }
}

// Work on a capturing stream has become a graph node. Default streams (1 and 2) cannot be queried
// without harm to another capture.
bool was_captured(const Driver& driver, const TraceRecord& event) {
  if (!captures_were_begun.load(std::memory_order_relaxed)) return false;
  if (event.stream <= 2 || !is_work(event.event)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(reinterpret_cast<CUstream>(event.stream), &status) ==
             CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

Called called_at(std::uint64_t began, CUresult answer, Flavour flavour) {
  return {.answer = answer, .flavour = flavour, .began = began, .took = now_ns() - began};
}

void record_call(const Driver& driver, Call call, const Called& called, const TraceRecord& told) {
  TraceRecord event = told;
  event.call = static_cast<std::uint16_t>(call);
  event.result = static_cast<std::int16_t>(called.answer);
  if (called.began != 0) {
    event.time = called.began + (begins_something(event.event) ? called.took : 0);
  }
  if (called.flavour == Flavour::PerThread) event.flags |= trace_flag::per_thread;
  const Whereabouts here = whereabouts(driver);
  if (event.device == no_device) event.device = here.device;
  if (event.context == 0) event.context = here.context;
  if (event.event == TraceEvent::CaptureBegin) captures_were_begun = true;
  if (is_refused_memory(event) && event.device == here.device) {
    event.other = free_memory(driver).value_or(0);
  }
  if (was_captured(driver, event)) event.flags |= trace_flag::captured;
  record_event(event);
  if (event.event == TraceEvent::Allocate) sample_stack_of(event);
}

void record_plain_call(const Driver& driver, Call call, const Called& called,
                       std::uint64_t stream) {
  record_call(driver, call, called,
              {.event = TraceEvent::Call, .stream = stream, .other = called.took});
}

}  // namespace cuvmm::hook
