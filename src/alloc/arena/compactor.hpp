// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

// Moves live memory of a device's arenas closer together, for a request that would otherwise be
// refused.
class Compactor {
 public:
  virtual ~Compactor() = default;

  // Makes chunks available in the store. Does nothing if that cannot yield `missing` bytes, or the
  // memory must not move now. Waits for work until now_ns() reaches `until`. Returns whether it
  // made any. `asker`: the stream that needs the memory, or no_stream. Called with no lock of an
  // arena held.
  virtual bool make_room(Size missing, StreamId asker, std::uint64_t until) = 0;
  // Whether to spill instead, if that is possible, because memory has moved only recently.
  virtual bool is_resting() const = 0;
};

}  // namespace cuvmm
