// SPDX-License-Identifier: Apache-2.0
#include "replay/driver_policy.hpp"

namespace cuvmm::replay {

Result<void> DriverPolicy::allocate(const ReplayEvent& event) {
  const Driver& driver = simulation_.driver();
  CUdeviceptr address = 0;
  const CUresult answer = driver.cuMemAlloc(&address, event.size);
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free = 0;
    std::size_t total = 0;
    TRY(driver.check(driver.cuMemGetInfo(&free, &total), "read the card's memory"));
    return Error{.kind = ErrorKind::OutOfMemory,
                 .doing = "allocate",
                 .asked = event.size,
                 .available = free};
  }
  TRY(driver.check(answer, "allocate", event.size));
  ++creates_;
  used_[event.block] = address;
  return {};
}

Result<void> DriverPolicy::release(const ReplayEvent& event) {
  const auto found = used_.find(event.block);
  if (found == used_.end()) return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  const CUdeviceptr address = found->second;
  used_.erase(found);
  const Driver& driver = simulation_.driver();
  return driver.check(driver.cuMemFree(address), "free", event.size);
}

PolicyCounters DriverPolicy::counters() const {
  return {.physical_peak_bytes = simulation_.physical_peak(),
          .creates = creates_,
          .modelled_us = simulation_.modelled_us()};
}

}  // namespace cuvmm::replay
