// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/options.hpp"

namespace cuvmm {

// What the options say about memory.
struct MemorySettings {
  SizeLimit limit = SizeLimit::none();
  SizeLimit cache = SizeLimit::none();
  Grow grow = Grow::Loose;
  FreeMode free = FreeMode::Exact;
  Compact compact = Compact::Auto;
  Duration wait{1'000'000};
  Spill spill;
  DeviceList spill_peers;
  Size chunk = 0;  // of all chunks of stream-ordered memory; 0: what arenas choose
};

}  // namespace cuvmm
