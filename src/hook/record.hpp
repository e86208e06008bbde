// SPDX-License-Identifier: Apache-2.0
// What the trace is told of a call. Everything here costs a load and a branch without a trace.
#pragma once

#include "base/clock.hpp"
#include "hook/door.hpp"
#include "trace/record_event.hpp"

namespace cuvmm::hook {

constexpr std::uint16_t row_of(Call call) {
  return static_cast<std::uint16_t>(call);
}

// The number by which a stream stands in the trace: 1 and 2 are the legacy and the thread's own.
inline std::uint64_t stream_number(CUstream stream, Flavour flavour) {
  if (stream != nullptr) return reinterpret_cast<std::uint64_t>(stream);
  return flavour == Flavour::Legacy ? 1 : 2;
}

// The device of the calling thread's context; no_device where there is none.
inline std::int16_t current_device(const Driver& driver) {
  CUdevice device = 0;
  if (driver.cuCtxGetDevice_v2000(&device) != CUDA_SUCCESS) return no_device;
  return static_cast<std::int16_t>(device);
}

// Runs the call; in a trace, it stands there with the time that it took. A call that no pending
// work could notice is not worth a record.
template <Call call, class Run>
CUresult recorded(Run&& run) {
  if constexpr (info(call).effect == Effect::Neutral) return run();
  if (!trace_is_on()) return run();
  const std::uint64_t began = now_ns();
  const CUresult answer = run();
  record_event({.time = began,
                .event = TraceEvent::Call,
                .call = row_of(call),
                .result = static_cast<std::int16_t>(answer),
                .other = now_ns() - began});
  return answer;
}

// Fills in what every record of a call has, and records it.
template <Call call>
void record(const Forward<call>& forward, CUresult answer, TraceRecord event) {
  if (!trace_is_on()) return;
  event.call = row_of(call);
  event.result = static_cast<std::int16_t>(answer);
  event.device = current_device(forward.engine().driver());
  if (forward.flavour() == Flavour::PerThread) event.flags |= trace_flag::per_thread;
  record_event(event);
}

}  // namespace cuvmm::hook
