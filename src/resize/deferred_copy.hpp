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

// A copy from the start of one block to the start of another, which the program was told is done or
// submitted, and which nobody could tell from one that is.
struct DeferredCopy {
  AllocationMap::Found to;
  AllocationMap::Found from;
  Size size = 0;
  ContextMemory* owner = nullptr;   // of both
  CUstream stream = nullptr;        // as any thread may name it; the legacy stream by its handle
  std::uint64_t own_stream_of = 0;  // the thread whose default stream it is; 0: none's
  std::uint64_t note =
      0;  // the number of the last work that was submitted before it (SubmissionEpoch)
  bool may_be_waited_for = false;  // the program may have, and counts on it

  WindowBlock& target() const { return static_cast<WindowBlock&>(*to.allocation); }
  WindowBlock& source() const { return static_cast<WindowBlock&>(*from.allocation); }
  CUdeviceptr to_address() const { return to.facts.address; }
  CUdeviceptr from_address() const { return from.facts.address; }
};

}  // namespace cuvmm
