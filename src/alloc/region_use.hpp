// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm {

// A snapshot of one arena, or of a context's windows.
struct RegionUse {
  const char* what = "";  // as in traces; a literal
  Size held = 0;          // physical memory, on the device and elsewhere
  Size used = 0;          // by live blocks
  Size cached = 0;        // by freed blocks kept for the next allocation of their size
  Size spilled = 0;       // of the held bytes
  Size reserved = 0;      // addresses
  std::uint64_t blocks = 0;
};

}  // namespace cuvmm
