// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <functional>
#include <map>
#include <vector>

#include "base/lock.hpp"
#include "base/size.hpp"
#include "sim/cuda.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {

// The program's advice for a range of managed memory. It has no effect here, since managed memory
// is host memory that all devices can access, but it can be queried.
struct ManagedAdvice {
  static constexpr CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_INVALID,
                                            .id = CU_DEVICE_INVALID};
  static constexpr int host = most_devices;  // index in accessed_by

  bool read_mostly = false;
  CUmemLocation preferred = nowhere;
  CUmemLocation prefetched_to = nowhere;
  std::bitset<most_devices + 1> accessed_by;  // one bit per device, the host last
};

// The advice for all managed allocations, in steps of 4 KiB (measured).
class ManagedAdvices {
 public:
  static ManagedAdvices& get();

  void add(CUdeviceptr address, Size size);
  void remove(CUdeviceptr address);

  // The range must lie within the allocation.
  void change(CUdeviceptr allocation, CUdeviceptr address, Size size,
              const std::function<void(ManagedAdvice&)>& change);
  // One element per range with the same advice, in address order.
  std::vector<ManagedAdvice> of(CUdeviceptr allocation, CUdeviceptr address, Size size) const;

 private:
  // Each entry holds from its address up to the next entry.
  using Pieces = std::map<CUdeviceptr, ManagedAdvice>;
  static Pieces::iterator split_at(Pieces& pieces, CUdeviceptr address);

  mutable Lock lock_{LockOrder::SimManaged};  // guards the members below
  std::map<CUdeviceptr, Pieces> allocations_;
};

}  // namespace cuvmm::sim
