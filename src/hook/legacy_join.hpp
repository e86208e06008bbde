// SPDX-License-Identifier: Apache-2.0
// A copy or set on the legacy stream that names blocking memory of another context is work of that
// context's legacy stream as well, on whichever device it is (measured): it comes after all that
// was given to that context's blocking streams before, and before all that they are given later.
// The driver does not know whose our memory is, so we make the two streams wait for each other.
#pragma once

#include <array>
#include <cstddef>

#include "engine/engine.hpp"

namespace cuvmm::hook {

class LegacyJoin {
 public:
  explicit LegacyJoin(Engine& engine) : engine_(&engine) {}

  // A context that owns memory which the call names.
  void add(CUcontext owner);

  // Before the driver is given the call: the current legacy stream waits for those of the owners.
  CUresult begin() const;
  // Afterwards: theirs wait for it.
  CUresult finish(CUresult answer) const;

 private:
  static constexpr std::size_t most_owners = 4;

  CUresult follow(CUcontext follower, CUcontext followed) const;

  Engine* engine_;
  std::array<CUcontext, most_owners> owners_{};
  std::size_t count_ = 0;
};

}  // namespace cuvmm::hook
