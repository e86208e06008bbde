// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <unordered_set>

#include "base/lock.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// Memory whose free is queued, so that a second free of it is refused at once, as the driver would.
class QueuedFrees {
 public:
  // False where it is on its way already.
  bool begin(CUdeviceptr address) {
    const Holding holding{lock_};
    return addresses_.insert(address).second;
  }
  // Before the memory can become somebody else's.
  void end(CUdeviceptr address) {
    const Holding holding{lock_};
    addresses_.erase(address);
  }

 private:
  Lock lock_{LockOrder::QueuedFrees};  // guards what follows
  std::unordered_set<CUdeviceptr> addresses_;
};

}  // namespace cuvmm
