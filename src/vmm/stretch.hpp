// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"

namespace cuvmm {

// Bytes [offset, offset + size) of something larger. Check fits() first: otherwise end() may have
// wrapped around.
struct Stretch {
  Size offset = 0;
  Size size = 0;

  constexpr bool fits(Size whole) const { return size <= whole && offset <= whole - size; }
  constexpr Size end() const { return offset + size; }
  constexpr bool contains(Size at) const { return at >= offset && at - offset < size; }
  constexpr bool overlaps(const Stretch& other) const {
    return offset < other.end() && other.offset < end();
  }
  friend constexpr bool operator==(const Stretch&, const Stretch&) = default;
};

}  // namespace cuvmm
