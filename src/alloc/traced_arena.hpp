// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm {

// What an arena, or a context's windows, hold at one moment.
struct ArenaUse {
  Size used = 0;       // by blocks of the program's
  Size free = 0;       // the rest of what they have memory for
  Size moved = 0;      // of free chunks, so far
  Size compacted = 0;  // of live blocks, so far
};

// An arena, or a context's windows, as traces know them: by a number, and by what it is for.
class TracedArena {
 public:
  // `what` is named in the trace that is being taken.
  TracedArena(int device, const char* what);

  // Used where trace_is_on().
  void tell(const ArenaUse& use) const;

 private:
  const int device_;
  const std::uint32_t number_;
};

}  // namespace cuvmm
