// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "alloc/memory.hpp"

namespace cuvmm {

enum class WhyRun : std::uint8_t {
#define CUVMM_WHY_RUN(name, number, key, words) name = number,
#include "base/why_run.def"
#undef CUVMM_WHY_RUN
};

// nullptr for a number that this version does not know.
const char* words_of(WhyRun why);

// A copy from the start of one block to the start of another. The program was told that it is done
// or submitted, and nothing has been able to observe that it is not.
struct DeferredCopy {
  AllocationMap::Found to;
  AllocationMap::Found from;
  Size size = 0;
  ContextMemory* owner = nullptr;  // of both blocks
  CUstream stream = nullptr;       // by a name valid in any thread; the legacy stream by its handle
  std::uint64_t own_stream_of = 0;  // the thread whose default stream it is; 0: none
  std::uint64_t note =
      0;  // the epoch of the last work that was submitted before the copy (SubmissionEpoch)
  bool may_be_waited_for = false;  // the program may have waited for it, and relies on that

  WindowBlock& target() const { return static_cast<WindowBlock&>(*to.allocation); }
  WindowBlock& source() const { return static_cast<WindowBlock&>(*from.allocation); }
  CUdeviceptr to_address() const { return to.facts.address; }
  CUdeviceptr from_address() const { return from.facts.address; }
};

}  // namespace cuvmm
