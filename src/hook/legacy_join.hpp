// SPDX-License-Identifier: Apache-2.0
// A copy or set on the legacy stream that names another context's blocking memory is also work of
// that context's legacy stream, on any device (measured): it comes after all earlier work of that
// context's blocking streams, and before all their later work. The driver does not know which
// context owns cuvmm's memory, so this class makes the two legacy streams wait for each other.
#pragma once

#include <array>
#include <cstddef>

#include "engine/engine.hpp"

namespace cuvmm::hook {

class LegacyJoin {
 public:
  explicit LegacyJoin(Engine& engine) : engine_(&engine) {}

  // Adds a context that owns memory named by the call.
  void add(CUcontext owner);

  // Call before the driver call: makes the current legacy stream wait for the owners'.
  CUresult begin() const;
  // Call after the driver call: makes the owners' legacy streams wait for the current one.
  CUresult finish(CUresult answer) const;

 private:
  static constexpr std::size_t most_owners = 4;

  CUresult follow(CUcontext follower, CUcontext followed) const;

  Engine* engine_;
  std::array<CUcontext, most_owners> owners_{};
  std::size_t count_ = 0;
};

}  // namespace cuvmm::hook
