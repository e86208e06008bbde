// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vmm/copy_stream.hpp"

namespace cuvmm {

// A period in which only we touch the memory of a context's blocks: the precondition for moving
// live ones. Called with no lock held.
class Quiescence {
 public:
  virtual ~Quiescence() = default;

  // Whether begin() would refuse at once, as far as is known without looking. Ask before planning
  // moves, which is expensive.
  virtual bool is_ruled_out() const { return false; }
  // Blocks new work and waits for all work that could touch the memory. Returns false, with nothing
  // blocked, if such work remains when now_ns() reaches `until`, or live memory must not move at
  // all. After success and until end(), the context is current on this thread and the thread's
  // capture mode is relaxed.
  virtual bool begin(std::uint64_t until) = 0;
  virtual void end() = 0;

  // Between begin() and end(): a stream without other work, for the copies.
  virtual CopyBy copy_by() = 0;
};

}  // namespace cuvmm
