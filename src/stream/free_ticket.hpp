// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cuvmm {

// cuvmm's own number for a stream: counts from 1 and is never reused.
using StreamId = std::uint32_t;
inline constexpr StreamId no_stream = 0;

// The point at which memory was freed: after all work submitted to the stream before the free.
// Without a stream, all work that could touch the memory had already completed.
struct FreeTicket {
  StreamId stream = no_stream;
  std::uint64_t tick = 0;  // increases with every free on that stream

  constexpr bool is_for_anyone() const { return stream == no_stream; }
  friend constexpr bool operator==(const FreeTicket&, const FreeTicket&) = default;
};

}  // namespace cuvmm
