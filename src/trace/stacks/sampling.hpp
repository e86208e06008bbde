// SPDX-License-Identifier: Apache-2.0
// Records which code allocates: the call stacks of a sample of the allocations, in the trace.
#pragma once

#include "base/size.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// Begins with one sample for every `interval` bytes on average; 0: none, 1: every allocation. Call
// once, after the trace has started.
void start_stack_samples(Size interval);

// Records the caller's stack if this allocation, which has just been recorded, is in the sample.
// The caller must hold no lock of cuvmm's, since this may call Python. Preserves errno, ignores
// recursive calls, and never fails: frames that cannot be found are left out.
void sample_stack_of(const TraceRecord& allocation);

// Call in a forked child.
void forget_stack_samples();

}  // namespace cuvmm
