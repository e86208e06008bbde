// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cuvmm {

// A stream as we count them: from 1 on, never used again.
using StreamId = std::uint32_t;
inline constexpr StreamId no_stream = 0;

// When memory was freed: after all the work that its stream had been given by then. Without a
// stream, all work that could touch it was done already.
struct FreeTicket {
  StreamId stream = no_stream;
  std::uint64_t tick = 0;  // grows with every free on that stream

  constexpr bool is_for_anyone() const { return stream == no_stream; }
  friend constexpr bool operator==(const FreeTicket&, const FreeTicket&) = default;
};

}  // namespace cuvmm
