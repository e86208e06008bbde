// SPDX-License-Identifier: Apache-2.0
// What the descriptions of calls have in common.
#pragma once

#include "hook/record.hpp"

namespace cuvmm::hook {

// A handle or host address, as records hold it.
template <class T>
std::uint64_t number(T* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

// What stands at `where`, once the driver has granted the call and so has read or written it.
template <class T>
T given(const Called& called, const T* where) {
  return called.granted() && where != nullptr ? *where : T{};
}

// The first of a list that a batch call names.
template <class T>
T first(const Called& called, const T* list, std::size_t count) {
  return count > 0 ? given(called, list) : T{};
}

inline std::uint64_t sum(const Called& called, const std::size_t* sizes, std::size_t count) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; called.granted() && sizes != nullptr && i < count; ++i) all += sizes[i];
  return all;
}

// A call that has no event of its own but names memory or a stream.
inline TraceRecord call(const Called& called, std::uint64_t address, std::uint64_t size,
                        std::uint64_t stream = 0) {
  return {.event = TraceEvent::Call,
          .address = address,
          .size = size,
          .stream = stream,
          .other = called.took};
}

}  // namespace cuvmm::hook
