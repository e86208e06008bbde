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

// What the program said about a stretch of managed memory. Nothing follows from it here, where
// managed memory is host memory that all devices reach; but it can be asked for.
struct ManagedAdvice {
  static constexpr CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_INVALID,
                                            .id = CU_DEVICE_INVALID};
  static constexpr int host = most_devices;  // of accessed_by

  bool read_mostly = false;
  CUmemLocation preferred = nowhere;
  CUmemLocation prefetched_to = nowhere;
  std::bitset<most_devices + 1> accessed_by;  // a device each, the host last
};

// The advice of every managed allocation, in steps of 4 KiB (measured).
class ManagedAdvices {
 public:
  static ManagedAdvices& get();

  void add(CUdeviceptr address, Size size);
  void remove(CUdeviceptr address);

  // The range lies within the allocation.
  void change(CUdeviceptr allocation, CUdeviceptr address, Size size,
              const std::function<void(ManagedAdvice&)>& change);
  // Stretch by stretch.
  std::vector<ManagedAdvice> of(CUdeviceptr allocation, CUdeviceptr address, Size size) const;

 private:
  // From where each holds, up to the next.
  using Pieces = std::map<CUdeviceptr, ManagedAdvice>;
  static Pieces::iterator split_at(Pieces& pieces, CUdeviceptr address);

  mutable Lock lock_{LockOrder::SimManaged};  // guards what follows
  std::map<CUdeviceptr, Pieces> allocations_;
};

}  // namespace cuvmm::sim
