// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace cuvmm {

// The steps that were tried for an allocation before it was refused.
class ReclaimSteps {
 public:
  enum What : std::uint8_t {
    NewMemory = 1,     // from the driver, within the limit, and from other holders
    FreeChunks = 2,    // moved to where they were needed
    CachedBlocks = 4,  // released
    PendingWork = 8,   // waited for
    LiveBlocks = 16,   // compacted, if that yields enough
    Elsewhere = 32,    // spilled memory
    OtherOwners = 64,  // asked to release what they cache
    Lease = 128,       // a larger one, asked of the node service
  };

  void add(What what) { bits_ |= what; }

  bool any() const { return bits_ != 0; }
  void stand_in(Error& refusal) const {
    refusal.tried = bits_;
    refusal.subject = words();
  }

 private:
  const char* words() const;  // never freed
  std::uint8_t bits_ = 0;
};

}  // namespace cuvmm
