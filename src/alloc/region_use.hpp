// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm {

// The state of one arena, or of a context's windows, at one moment.
struct RegionUse {
  const char* what = "";  // as in traces; a literal
  Size held = 0;          // physical memory, on the device and elsewhere
  Size used = 0;          // by live blocks
  Size cached = 0;        // by freed blocks that are kept for the next allocation of their size
  Size spilled = 0;       // of what is held
  Size reserved = 0;      // addresses
  std::uint64_t blocks = 0;
};

}  // namespace cuvmm
