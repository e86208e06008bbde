// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"

namespace cuvmm {

// Moves live stream-ordered memory of a device, of all its pools, for a request that would
// otherwise be refused.
class Memory::DeviceCompactor final : public Compactor {
 public:
  DeviceCompactor(Memory& memory, int device) : memory_(memory), device_(device) {}

  bool make_room(Size missing, std::uint64_t until) override;

 private:
  Size could_share(Size wanted) const;
  struct Shared {
    Size freed = 0;
    bool copies_may_run = false;
  };
  Shared share(Size wanted, const CopyBy& copy) const;

  Memory& memory_;
  const int device_;
  std::atomic<std::uint64_t> not_before_{0};  // in now_ns()
};

}  // namespace cuvmm
