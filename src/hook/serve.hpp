// SPDX-License-Identifier: Apache-2.0
// How a body serves a call itself, or leaves it to the driver.
#pragma once

#include "driver/current_context.hpp"
#include "engine/trace_life.hpp"
#include "hook/record.hpp"

namespace cuvmm::hook {

// How the flavour of a call and its argument name a stream.
template <Call call>
StreamName stream_name(const Forward<call>& forward, CUstream stream) {
  return {.handle = stream, .null_is_per_thread = forward.flavour() == Flavour::PerThread};
}

// `serve(Memory&)` answers, or nothing where the call is the driver's business.
template <Call call, class Serve>
Answer served(const Forward<call>& forward, Serve&& serve) {
  Serving* serving = forward.engine().serving();
  if (serving == nullptr) return std::nullopt;
  const std::uint64_t began = trace_is_on() ? begin_own_time() : 0;
  const Answer answer = serve(serving->memory);
  if (began != 0 && answer) end_own_time(began);
  return answer;
}

// Where an allocation of ours was granted more than the program asked for, the driver knows no
// memory of its own.
inline bool is_past_what_was_asked(const AllocationFacts& held, CUdeviceptr address) {
  return address - held.address >= held.asked;
}

// What puts copies off; nullptr where nobody does.
template <Call call>
Resizer* resizer_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? serving->resizer() : nullptr;
}

// Nothing where a linear copy is to be made. In place of its announcement.
template <Call call>
Answer put_off(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
               CUstream stream) {
  Resizer* const resizer = resizer_of(forward);
  if (resizer == nullptr || !resizer->is_worth_a_look(size)) return std::nullopt;
  // What is queued cannot be asked about.
  if (forward.engine().scheduling().is_on()) return std::nullopt;
  return resizer->defer(to, from, size, stream_name(forward, stream));
}

// The clock of streams, where somebody keeps one.
template <Call call>
StreamClock* clock_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? &serving->clock : nullptr;
}

}  // namespace cuvmm::hook
