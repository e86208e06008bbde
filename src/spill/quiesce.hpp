// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "alloc/program_chunks.hpp"
#include "base/still_wanted.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// The parts needed to hold the program still and move its memory.
struct ProgramParts {
  const Driver& driver;
  Memory& memory;
  // Entered by every call of the program that touches memory or work.
  CallBarrier& calls;
  // Waits until queued calls have been handed to the driver; false if they were not by `until`.
  std::function<bool(std::uint64_t until)> settle_queued = [](std::uint64_t) { return true; };
  std::function<bool()> is_scheduled = [] { return false; };
  // Called once all work has ended, so that the thread that watches for completed work stops
  // polling the driver.
  std::function<void()> forget_ended_work = [] {};
  // The virtual memory that the program manages itself; nullptr if nothing records it.
  ProgramChunks* chunks = nullptr;
  const Captures* captures = nullptr;  // nullptr if nothing tracks them
};

inline Error called_off(const char* doing) {
  return {.kind = ErrorKind::TimedOut, .doing = doing, .subject = "it was cancelled"};
}

// Why the program must not be held still to move its memory; nullptr if it may be.
const char* why_not_quiescible(const ProgramParts& program);

// Quiesces the program: on success no call and no work is in flight, no stream is being captured,
// and none of that begins until end_quiescence(). Stream captures end by calls of the program, so
// it first waits for them while the calls go on. TimedOut, and the program goes on, if captures
// have not ended or calls have not returned by `calls_until`, or work has not finished by
// `work_until`, or `is_wanted` returned false. The error names a capture or a call that is late.
// One caller at a time.
Result<void> quiesce(const ProgramParts& program, const char* doing, std::uint64_t calls_until,
                     std::uint64_t work_until, const StillWanted& is_wanted = &always_wanted);
inline void end_quiescence(const ProgramParts& program) {
  program.calls.open();
}

}  // namespace cuvmm
