// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hook/events/words.hpp"

namespace cuvmm::hook {

inline TraceRecord copy(const Called& called, std::uint64_t to, std::uint64_t from,
                        std::uint64_t size, std::uint64_t stream) {
  return {.event = TraceEvent::Copy,
          .detail = called.took_briefly(),
          .address = to,
          .size = size,
          .stream = stream,
          .other = from};
}

}  // namespace cuvmm::hook
