// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/windows/window_transfer.hpp"

namespace cuvmm {

// The cost of a copy, and of mapping instead. Measured on an H200 (docs/internals/driver_facts.md).
// Only the break-even point matters, some 64 granules a chunk, and it is much the same on other
// cards: mapping costs by the chunk, copying by the byte. With a granule of another size,
// everything scales with it.
class CostModel {
 public:
  explicit constexpr CostModel(Size granule) : granule_(granule) {}

  // In microseconds.
  constexpr double copy(Size bytes) const { return 10 + 0.49 * in_mib(bytes); }

  // Replaced chunks are unmapped. Arriving chunks are mapped, the device is given access, and they
  // are unmapped at their old addresses.
  constexpr double map(const WindowTransfer::Movable& change) const {
    const double mib = in_mib(change.bytes);
    const double gone = static_cast<double>(change.replaced) * 18 + mib * 0.02;
    const double came = static_cast<double>(change.chunks) * (25 + 18) + mib * (0.06 + 0.02);
    const double filled = change.filler != 0 ? 75 + in_mib(change.filler) * 0.08 : 0;
    return gone + came + filled;
  }

  constexpr bool wins(const WindowTransfer::Movable& change, Size bytes) const {
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
