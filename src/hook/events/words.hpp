// SPDX-License-Identifier: Apache-2.0
// Helpers shared by the descriptions of calls.
#pragma once

#include "hook/record.hpp"

namespace cuvmm::hook {

// A handle or host address as stored in records.
template <class T>
std::uint64_t number(T* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

// The value at `where`, read only if the driver granted the call and so has read or written it.
template <class T>
T given(const Called& called, const T* where) {
  return called.granted() && where != nullptr ? *where : T{};
}

// The first element of a batch call's list.
template <class T>
T first(const Called& called, const T* list, std::size_t count) {
  return count > 0 ? given(called, list) : T{};
}

inline std::uint64_t sum(const Called& called, const std::size_t* sizes, std::size_t count) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; called.granted() && sizes != nullptr && i < count; ++i) all += sizes[i];
  return all;
}

// A call that has no event type of its own but names memory or a stream.
inline TraceRecord call(const Called& called, std::uint64_t address, std::uint64_t size,
                        std::uint64_t stream = 0) {
  return {.event = TraceEvent::Call,
          .address = address,
          .size = size,
          .stream = stream,
          .other = called.took};
}

}  // namespace cuvmm::hook
