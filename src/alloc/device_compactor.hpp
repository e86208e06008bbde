// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/arena/compactor.hpp"
#include "alloc/live_move_policy.hpp"
#include "alloc/move_pace.hpp"
#include "vmm/copy_stream.hpp"

namespace cuvmm {

class ServedPools;

// Moves live stream-ordered memory of all pools of a device, for a request that would otherwise be
// refused.
class DeviceCompactor final : public Compactor {
 public:
  // All must outlive this object.
  DeviceCompactor(const ServedPools& pools, const MemoryDependencies& dependencies,
                  const LiveMovePolicy& policy, int device)
      : pools_(pools), dependencies_(dependencies), policy_(policy), device_(device) {}

  bool make_room(Size missing, StreamId asker, std::uint64_t until) override;
  bool is_resting() const override { return pace_.is_resting(MovePace::Else::Spilled); }

 private:
  CUcontext context_for(StreamId asker) const;
  Size could_share(Size wanted) const;
  Size share(Size wanted, const CopyBy& copy) const;

  const ServedPools& pools_;
  const MemoryDependencies& dependencies_;
  const LiveMovePolicy& policy_;
  const int device_;
  MovePace pace_;
};

}  // namespace cuvmm
