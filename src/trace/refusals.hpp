// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trace/record.hpp"

namespace cuvmm {

inline constexpr std::int16_t out_of_memory_result = 2;  // CUDA_ERROR_OUT_OF_MEMORY

// Whether the program was refused device memory for lack of it. Requests that were wrong in
// themselves are no such refusals. Old logs have no result.
inline bool is_refused_allocation(const TraceRecord& record) {
  return record.event == TraceEvent::AllocateFailed && is_device_memory(record) &&
         (record.result == out_of_memory_result || record.result == 0);
}

// The same, including chunks that the program asked for itself.
inline bool is_refused_memory(const TraceRecord& record) {
  const bool is_refused_chunk =
      record.event == TraceEvent::Create && record.result == out_of_memory_result;
  return is_refused_allocation(record) || (is_refused_chunk && is_device_memory(record));
}

}  // namespace cuvmm
