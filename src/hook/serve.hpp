// SPDX-License-Identifier: Apache-2.0
// How a body serves a call itself or leaves it to the driver.
#pragma once

#include "driver/current_context.hpp"
#include "engine/trace_life.hpp"
#include "hook/record.hpp"

namespace cuvmm::hook {

// The stream that a call names by its flavour and its argument.
template <Call call>
StreamName stream_name(const Forward<call>& forward, CUstream stream) {
  return {.handle = stream, .null_is_per_thread = forward.flavour() == Flavour::PerThread};
}

// `serve(Memory&)` returns an answer, or nullopt to leave the call to the driver.
template <Call call, class Serve>
Answer served(const Forward<call>& forward, Serve&& serve) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr) return std::nullopt;
  const std::uint64_t began = trace_is_on() ? begin_own_time() : 0;
  const Answer answer = serve(serving->memory);
  if (began != 0 && answer) end_own_time(began);
  return answer;
}

// An allocation may be granted more than the program requested. The driver would know no memory
// past the requested size.
inline bool is_past_requested_size(const AllocationFacts& held, CUdeviceptr address) {
  return address - held.address >= held.asked;
}

// The resizer, which defers copies; nullptr if there is none.
template <Call call>
Resizer* resizer_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? serving->resizer() : nullptr;
}

// Call instead of announcing a linear copy. Returns nullopt if the copy must be made.
template <Call call>
Answer try_defer_copy(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
                      CUstream stream) {
  Resizer* const resizer = resizer_of(forward);
  if (resizer == nullptr || !resizer->may_be_deferred(size)) return std::nullopt;
  // The state of queued work is unknown.
  if (forward.engine().scheduling().is_on()) return std::nullopt;
  return resizer->defer(to, from, size, stream_name(forward, stream));
}

// The stream clock; nullptr if there is none.
template <Call call>
StreamClock* clock_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? &serving->clock : nullptr;
}

}  // namespace cuvmm::hook
