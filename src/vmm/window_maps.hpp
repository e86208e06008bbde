// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "driver/driver.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {

// Addresses with memory behind them, side by side.
struct MappedRun {
  CUdeviceptr address;
  Size bytes;
};

// What windows need of the driver. A Mapping would keep a node for each granule, where a window's
// own record says all of it already; so the callers keep the books, and each call here either
// happens or changes nothing, but where it says so. Not synchronised.
class WindowMaps {
 public:
  WindowMaps(const Driver& driver, int device, AccessSet access)
      : driver_(driver), device_(device), access_(access) {}

  const Driver& driver() const { return driver_; }
  AccessSet access() const { return access_; }
  Size mapped_bytes() const { return mapped_bytes_; }

  // Nobody may use it before allow(), over which all windows have the same rights.
  Result<void> map(CUdeviceptr address, const ChunkRef& chunk);
  Result<void> allow(CUdeviceptr address, Size bytes);
  Result<void> unmap(CUdeviceptr address, const ChunkRef& chunk);

  // At the end, when nobody can be told that the driver refused: it is asked again later.
  void unmap_or_defer(CUdeviceptr address, const ChunkRef& chunk);
  // Nothing is mapped any more.
  void forget_all() { mapped_bytes_ = 0; }

  // Other memory behind the same addresses. Where the driver refuses both this and its undoing,
  // `left` says what it left there.
  enum class Left : std::uint8_t { After, AfterUnusable, Before, BeforeUnusable, Nothing };
  struct Swapped {
    Left left = Left::After;
    Result<void> outcome;
  };
  Swapped swap_backing(CUdeviceptr address, const ChunkRef& before, const ChunkRef& after);

  // The rights to everything that is mapped, all of it or nothing.
  Result<void> set_access(const AccessSet& access, const std::vector<MappedRun>& all);

 private:
  Result<void> change_access(const MappedRun& run, const AccessSet& before,
                             const AccessSet& after) const;

  const Driver& driver_;
  const int device_;
  AccessSet access_;
  Size mapped_bytes_ = 0;
};

}  // namespace cuvmm
