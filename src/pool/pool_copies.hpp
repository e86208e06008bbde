// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "vmm/copy_bytes.hpp"

namespace cuvmm {

// Where a pool copies: a stream of its own in the primary context of its home device.
class PoolCopies : public std::enable_shared_from_this<PoolCopies> {
 public:
  static Result<std::shared_ptr<PoolCopies>> create(const Driver& driver, int device);
  ~PoolCopies();
  PoolCopies(const PoolCopies&) = delete;
  PoolCopies& operator=(const PoolCopies&) = delete;

  // What `add` says is copied, in its order, and waited for. `held` is what must live until nothing
  // of it runs any more; after an Error that may be later.
  using Add = std::function<Result<void>(CopyBytes&)>;
  Result<void> copy(const Add& add, std::shared_ptr<void> held);

 private:
  PoolCopies(const Driver& driver, int device) : driver_(driver), device_(device) {}

  const Driver& driver_;
  const int device_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace cuvmm
