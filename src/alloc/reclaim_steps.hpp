// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace cuvmm {

// What was done for an allocation before it was refused.
class ReclaimSteps {
 public:
  enum What : std::uint8_t {
    NewMemory = 1,     // of the driver, within the limit; and what others could give up
    FreeChunks = 2,    // moved to where they were needed
    CachedBlocks = 4,  // given up
    PendingWork = 8,   // waited for
    LiveBlocks = 16,   // moved together, where that yields enough
    Elsewhere = 32,    // spilled memory
  };

  void add(What what) { bits_ |= what; }

  bool any() const { return bits_ != 0; }
  void stand_in(Error& refusal) const {
    refusal.tried = bits_;
    refusal.subject = words();
  }

 private:
  const char* words() const;  // live as long as the process
  std::uint8_t bits_ = 0;
};

}  // namespace cuvmm
