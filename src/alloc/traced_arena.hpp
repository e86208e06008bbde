// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm {

// A snapshot of what an arena, or a context's windows, hold.
struct ArenaUse {
  Size used = 0;       // by the program's blocks
  Size free = 0;       // the remaining mapped bytes
  Size moved = 0;      // of free chunks, so far
  Size compacted = 0;  // of live blocks, so far
};

// An arena, or a context's windows, as a trace identifies it: by a number and a purpose.
class TracedArena {
 public:
  // `what` is recorded as the purpose if a trace is being taken.
  TracedArena(int device, const char* what);

  // Call only if trace_is_on().
  void tell(const ArenaUse& use) const;

 private:
  const int device_;
  const std::uint32_t number_;
};

}  // namespace cuvmm
