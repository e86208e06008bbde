// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "alloc/memory.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// The program whose memory is put elsewhere.
struct ProgramParts {
  const Driver& driver;
  Memory& memory;
  // That every call of the program's passes which touches memory or work.
  CallBarrier& calls;
  // What calls have left to others to hand to the driver has been; false where it was not by then.
  std::function<bool(std::uint64_t until)> settle_queued = [](std::uint64_t) { return true; };
  std::function<bool()> is_scheduled = [] { return false; };
};

// Polled by long steps: false where the asker does not want it any more.
using StillWanted = std::function<bool()>;
inline bool always_wanted() {
  return true;
}

// Why it must not be held still to have its memory moved; nullptr where it may.
const char* why_it_runs_on(const ProgramParts& program);

// No call and no work is under way when it returns without an Error, and none begins until
// go_on(). TimedOut, and the program goes on, where calls are not through by the first time, and
// work by the second; or where nobody wants it any more meanwhile. The error names a call that is
// late, and its thread. By one at a time.
Result<void> hold_still(const ProgramParts& program, const char* doing, std::uint64_t calls_until,
                        std::uint64_t work_until, const StillWanted& is_wanted = &always_wanted);
inline void go_on(const ProgramParts& program) {
  program.calls.open();
}

}  // namespace cuvmm
