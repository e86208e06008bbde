// SPDX-License-Identifier: Apache-2.0
// A program's operations so far, and how the run ends at the first violation.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace cuvmm::order {

// Begins the trace of a new program.
void begin_trace(std::uint64_t seed, bool verbose);
// Adds a line. Printed at once if verbose, else only with a violation.
[[gnu::format(printf, 1, 2)]] void trace(const char* format, ...);

// Prints the kind of violation, the text, the trace and the seed, and ends the process with
// status 1.
[[noreturn, gnu::format(printf, 2, 3)]] void violation(const char* kind, const char* format, ...);

// Prints the lines of the trace that end with the text.
void print_lines_that_end_with(std::string_view text);

// If a call hangs, `explain` prints what else is known, on another thread.
void explain_hangs_by(std::function<void()> explain);

// Lets the run continue after a violation of this kind, to find others behind it.
void ignore(const char* kind);
bool is_ignored(const char* kind);

// Reports a violation unless the driver answered CUDA_SUCCESS.
void must(CUresult answer, const char* call);

// While it lives, the program is in a call that must return. A separate thread checks that, and
// reports a hang after some seconds. One at a time.
class MustReturn {
 public:
  explicit MustReturn(const char* call);
  ~MustReturn();
  MustReturn(const MustReturn&) = delete;
  MustReturn& operator=(const MustReturn&) = delete;
};
inline constexpr int patience_seconds = 60;

}  // namespace cuvmm::order
