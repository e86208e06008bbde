// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vmm/copy_bytes.hpp"

namespace cuvmm {

// A time in which nothing but us touches the memory of a context's blocks: what moving live ones
// stands on. Called with no lock held.
class Quiescence {
 public:
  virtual ~Quiescence() = default;

  // Holds new work back and waits for all that could touch the memory. False, with nothing held
  // back, where that is not done when now_ns() is `until`, or live memory must not move at all.
  // From then until end() the context is current on this thread, and its captures are relaxed.
  virtual bool begin(std::uint64_t until) = 0;
  virtual void end() = 0;

  // Between the two: a stream that has no other work, for the copies.
  virtual CopyBy copy_by() = 0;
};

}  // namespace cuvmm
