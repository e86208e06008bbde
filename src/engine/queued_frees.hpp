// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <unordered_set>

#include "base/lock.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// Memory whose free is queued, so that a second free is refused at once, as natively.
class QueuedFrees {
 public:
  // Returns false if a free of this address is already queued.
  bool begin(CUdeviceptr address) {
    const Holding holding{lock_};
    return addresses_.insert(address).second;
  }
  // Call once the free has been made, so that a second free of the address is never queued.
  void end(CUdeviceptr address) {
    const Holding holding{lock_};
    addresses_.erase(address);
  }

 private:
  Lock lock_{LockOrder::QueuedFrees};  // guards the members below
  std::unordered_set<CUdeviceptr> addresses_;
};

}  // namespace cuvmm
