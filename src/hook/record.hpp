// SPDX-License-Identifier: Apache-2.0
// Records a call in the trace and the log. Costs a load and a branch while both are off.
//
// CUVMM_EVENT (src/hook/events) describes a row: it computes the record from the call's arguments
// and the driver's answer. A row without a description leaves a Call event if it has an effect.
// Both work for rows with and without a body.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "hook/door.hpp"
#include "trace/record_event.hpp"

namespace cuvmm::hook {

// The number of a stream in the trace. 1 and 2 are the legacy and the per-thread default stream.
inline std::uint64_t stream_number(CUstream stream, Flavour flavour) {
  if (stream != nullptr) return reinterpret_cast<std::uint64_t>(stream);
  return flavour == Flavour::Legacy ? 1 : 2;
}

// An answered call, as passed to its description.
struct Called {
  CUresult answer = CUDA_SUCCESS;
  Flavour flavour = Flavour::Legacy;
  std::uint64_t began = 0;  // now_ns(); 0: unknown
  std::uint64_t took = 0;   // ns

  // Out-parameters and structs may be read only if this is true.
  bool granted() const { return answer == CUDA_SUCCESS; }
  std::uint64_t stream(CUstream stream) const { return stream_number(stream, flavour); }
  std::uint64_t own_stream() const { return stream_number(nullptr, flavour); }
  // For a 32-bit field: at most 4.29 s.
  std::uint32_t took_briefly() const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(took, std::numeric_limits<std::uint32_t>::max()));
  }
};

// The descriptions, declared for every row and defined for those that have one, like bodies.
template <Call call, class Function>
struct DescriptionOf;
template <Call call, class... Arguments>
struct DescriptionOf<call, CUresult (*)(Arguments...)> {
  using Type = TraceRecord(const Called& called, Arguments...);
};
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  DescriptionOf<Call::symbol, PFN_##name##_v##since>::Type event_of_##symbol;
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_EVENT(symbol, ...)                                              \
  static_assert(is_described<Call::symbol>, "list it in hook/row_parts.def"); \
  TraceRecord event_of_##symbol([[maybe_unused]] const Called& called __VA_OPT__(, ) __VA_ARGS__)

// A call that has just been answered.
Called called_at(std::uint64_t began, CUresult answer, Flavour flavour);

// Fills in the fields common to all records of calls (the row, the answer, when and where) and
// records it.
void record_call(const Driver& driver, Call call, const Called& called, const TraceRecord& event);

// The same for a call without a description; `stream` is 0 unless an argument is a stream.
void record_plain_call(const Driver& driver, Call call, const Called& called, std::uint64_t stream);

// The same for a body that makes its own record.
template <Call call>
void record(const Forward<call>& forward, CUresult answer, TraceRecord event) {
  if (!trace_is_on()) return;
  record_call(forward.engine().driver(), call, {.answer = answer, .flavour = forward.flavour()},
              event);
}

template <class... Arguments>
std::uint64_t stream_among(const Called& called, Arguments... arguments) {
  std::uint64_t stream = 0;
  [[maybe_unused]] const auto look_at = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), CUstream>) stream = called.stream(argument);
  };
  (look_at(arguments), ...);
  return stream;
}

}  // namespace cuvmm::hook
