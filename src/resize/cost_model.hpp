// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/windows/windows.hpp"

namespace cuvmm {

// What a copy costs, and what it costs to map instead. Measured on an H200 (docs/driver_facts.md);
// what matters is where the two meet, at some 64 granules a chunk, and that is much the same on
// other cards: mapping has a price for each chunk, copying one for each byte. A granule of another
// size makes everything smaller or larger by as much.
class CostModel {
 public:
  explicit constexpr CostModel(Size granule) : granule_(granule) {}

  // In us.
  constexpr double copy(Size bytes) const { return 10 + 0.49 * in_mib(bytes); }

  // The chunks that go are unmapped, those that come are mapped and opened to the device, and
  // unmapped where they lay.
  constexpr double map(const Windows::Movable& change) const {
    const double mib = in_mib(change.bytes);
    const double gone = static_cast<double>(change.replaced) * 18 + mib * 0.02;
    const double came = static_cast<double>(change.chunks) * (25 + 18) + mib * (0.06 + 0.02);
    const double filled = change.filler != 0 ? 75 + in_mib(change.filler) * 0.08 : 0;
    return gone + came + filled;
  }

  constexpr bool wins(const Windows::Movable& change, Size bytes) const {
    const double rest = change.bytes < bytes ? copy(bytes - change.bytes) : 0;
    return map(change) + rest < copy(bytes);
  }

 private:
  constexpr double in_mib(Size bytes) const {
    return 2 * static_cast<double>(bytes) / static_cast<double>(granule_);
  }

  Size granule_;
};

}  // namespace cuvmm
