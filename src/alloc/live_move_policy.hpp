// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory_dependencies.hpp"
#include "base/options.hpp"

namespace cuvmm {

// Whether memory that the program holds may move (VMM_COMPACT).
class LiveMovePolicy {
 public:
  // `dependencies` must outlive this object.
  LiveMovePolicy(const MemoryDependencies& dependencies, Compact compact)
      : dependencies_(dependencies), compact_(compact) {}

  bool may_move() const;
  // May not, as far as is known without examining every descriptor of the process.
  bool is_ruled_out() const;
  // Whether memory may be registered by address, out of our sight, for transfers that bypass the
  // driver.
  bool may_be_registered_by_address() const;
  // The same, as far as is known without examining every descriptor of the process.
  bool is_known_to_register_by_address() const;

 private:
  const MemoryDependencies& dependencies_;
  const Compact compact_;
};

}  // namespace cuvmm
