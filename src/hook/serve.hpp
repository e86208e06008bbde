// SPDX-License-Identifier: Apache-2.0
// How a body serves a call itself, or leaves it to the driver.
#pragma once

#include "driver/current_context.hpp"
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
  return serving != nullptr ? serve(serving->memory) : std::nullopt;
}

// The clock of streams, where somebody keeps one.
template <Call call>
StreamClock* clock_of(const Forward<call>& forward) {
  Serving* serving = forward.engine().serving();
  return serving != nullptr ? &serving->clock : nullptr;
}

}  // namespace cuvmm::hook
