// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "driver/driver.hpp"
#include "vmm/access_set.hpp"
#include "vmm/chunk_ref.hpp"

namespace cuvmm {

// Contiguous addresses with memory behind them.
struct MappedRun {
  CUdeviceptr address;
  Size bytes;
};

// The driver calls that windows need. A Mapping would keep a node for each granule, although the
// window's own record already has that information. So the callers do the bookkeeping, and each
// function here either succeeds or changes nothing, unless noted. Not synchronised.
class WindowMaps {
 public:
  WindowMaps(const Driver& driver, int device, AccessSet access)
      : driver_(driver), device_(device), access_(access) {}

  const Driver& driver() const { return driver_; }
  AccessSet access() const { return access_; }
  Size mapped_bytes() const { return mapped_bytes_; }

  // The memory must not be used before allow(), which gives the rights that all windows have.
  Result<void> map(CUdeviceptr address, const ChunkRef& chunk);
  Result<void> allow(CUdeviceptr address, Size bytes);
  Result<void> unmap(CUdeviceptr address, const ChunkRef& chunk);

  // For changes that a Remap makes.
  void note_mapped(CUdeviceptr address, const ChunkRef& chunk);
  void note_unmapped(CUdeviceptr address, const ChunkRef& chunk);

  // For teardown, which cannot report a refusal: if the driver refuses, it is asked again later.
  void unmap_or_defer(CUdeviceptr address, const ChunkRef& chunk);
  // Call when nothing is mapped any longer.
  void forget_all() { mapped_bytes_ = 0; }

  // Sets the rights to everything that is mapped. All or nothing.
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
