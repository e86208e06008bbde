// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "resize/resizable.hpp"

namespace cuvmm {

// The resizable buffers of the process, by their addresses.
class Resizables {
 public:
  Result<CUdeviceptr> reserve(const Driver& driver, DeviceMemory& device, Size most);
  // NotFound where no buffer begins there. While another thread releases it, it lives on.
  Result<std::shared_ptr<Resizable>> find(CUdeviceptr address);
  Result<void> release(CUdeviceptr address, const Resizable::After& after);

 private:
  void drop_those_done();

  Lock lock_{LockOrder::Resizables};  // guards what follows
  std::map<CUdeviceptr, std::shared_ptr<Resizable>> all_;
  std::vector<std::shared_ptr<Resizable>> leaving_;  // released, and a stream still has to come by
};

}  // namespace cuvmm
