// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>

#include "base/lock.hpp"
#include "sim/address_space.hpp"

namespace cuvmm::sim {

class Context;

// Storage for a context's allocations of up to 1 MiB: many share a granule, at 512-byte steps. A
// granule returns to the device only when its last block is freed. The real driver fragments in the
// same way (measured: freeing such blocks in a comb pattern returns nothing).
class SmallBlocks {
 public:
  explicit SmallBlocks(Device& device) : device_(device) {}

  static bool serves(Size size) { return size <= 1 * MiB; }
  // Returns 0 if the device is full.
  CUdeviceptr take(Size size, const std::vector<int>& accessors);
  void give_back(CUdeviceptr address, Size size);

 private:
  using FreeStretches = std::map<Size, Size>;  // offset, size
  struct Granule {
    FreeStretches free;
    Size used = 0;
    Size largest() const;
  };
  using Granules = std::map<CUdeviceptr, Granule>;
  void change(Granules::iterator granule, const std::function<void(Granule&)>& change);

  Device& device_;
  Lock lock_{LockOrder::SimBlocking};  // guards the members below
  Granules granules_;
  std::set<std::pair<Size, CUdeviceptr>> by_largest_;
};

// cuMemAlloc without the checks of its arguments.
CUresult allocate_blocking(const std::shared_ptr<Context>& context, Size size,
                           CUdeviceptr* address);

// Frees the memory of an allocation that was already removed from the AddressSpace. Does not wait.
void free_blocking_now(const Allocation& allocation);

// cuMemFree of managed memory (api/host_memory.cpp).
CUresult free_managed(const Allocation& allocation);

}  // namespace cuvmm::sim
