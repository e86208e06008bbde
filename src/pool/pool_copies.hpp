// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "driver/current_context.hpp"
#include "vmm/copy_bytes.hpp"

namespace cuvmm {

// A pool's stream for copies, in the primary context of its home device.
class PoolCopies : public std::enable_shared_from_this<PoolCopies> {
 public:
  static Result<std::shared_ptr<PoolCopies>> create(const Driver& driver, int device);
  ~PoolCopies();
  PoolCopies(const PoolCopies&) = delete;
  PoolCopies& operator=(const PoolCopies&) = delete;

  // Its context was reset: the program ended it, whoever else was using it.
  bool has_ended() const;
  // Runs the copies that `add` adds, in order, and waits for them. Keeps `held` alive until none of
  // them runs any more, which after an Error may be later.
  using Add = std::function<Result<void>(CopyBytes&)>;
  Result<void> copy(const Add& add, std::shared_ptr<void> held);

 private:
  PoolCopies(const Driver& driver, int device) : driver_(driver), device_(device) {}

  const Driver& driver_;
  const int device_;
  KnownContext context_;
  CUstream stream_ = nullptr;
};

}  // namespace cuvmm
