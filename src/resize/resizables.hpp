// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "resize/resizable.hpp"

namespace cuvmm {

// The resizable buffers of the process, by their addresses.
class Resizables {
 public:
  Result<CUdeviceptr> reserve(const Driver& driver, DeviceMemory& device, Size most);
  // NotFound if no buffer begins there. The buffer stays alive even if another thread releases it.
  Result<std::shared_ptr<Resizable>> find(CUdeviceptr address);
  Result<void> release(CUdeviceptr address, const Resizable::After& after);

 private:
  void drop_those_done();

  Lock lock_{LockOrder::Resizables};  // guards what follows
  std::map<CUdeviceptr, std::shared_ptr<Resizable>> all_;
  std::vector<std::shared_ptr<Resizable>> leaving_;  // released, but still waiting for a stream
};

}  // namespace cuvmm
