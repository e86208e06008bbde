// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"

namespace cuvmm {

// Free chunks and live blocks moved so far.
struct Moved {
  std::uint64_t count = 0;
  Size bytes = 0;

  Moved& operator+=(const Moved& other) {
    count += other.count;
    bytes += other.bytes;
    return *this;
  }
};

}  // namespace cuvmm
