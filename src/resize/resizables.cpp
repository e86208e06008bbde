// SPDX-License-Identifier: Apache-2.0
#include "resize/resizables.hpp"

#include <algorithm>

namespace cuvmm {

Result<CUdeviceptr> Resizables::reserve(const Driver& driver, DeviceMemory& device, Size most) {
  std::shared_ptr<Resizable> made = TRY(Resizable::create(driver, device, most));
  const CUdeviceptr address = made->address();
  drop_those_done();
  const Holding holding{lock_};
  all_.emplace(address, std::move(made));
  return address;
}

Result<std::shared_ptr<Resizable>> Resizables::find(CUdeviceptr address) {
  const Holding holding{lock_};
  const auto found = all_.find(address);
  if (found != all_.end()) return found->second;
  return Error{.kind = ErrorKind::NotFound,
               .doing = "find a resizable buffer",
               .subject = "none begins there"};
}

// First shrinks the buffer to nothing, which can fail, and then removes it.
Result<void> Resizables::release(CUdeviceptr address, const Resizable::After& after) {
  std::shared_ptr<Resizable> released = TRY(find(address));
  TRY(released->resize(0, after));
  const bool is_waiting = released->is_waiting();
  {
    const Holding holding{lock_};
    if (all_.erase(address) == 0) {
      return Error{.kind = ErrorKind::NotFound,
                   .doing = "release a resizable buffer",
                   .subject = "another thread has"};
    }
    if (is_waiting) leaving_.push_back(std::move(released));
  }
  drop_those_done();
  return {};
}

void Resizables::drop_those_done() {
  std::vector<std::shared_ptr<Resizable>> gone;  // destroyed without the lock
  const Holding holding{lock_};
  std::erase_if(leaving_, [&](std::shared_ptr<Resizable>& one) {
    if (one->is_waiting()) return false;
    gone.push_back(std::move(one));
    return true;
  });
}

}  // namespace cuvmm
