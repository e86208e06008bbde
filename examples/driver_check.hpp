// SPDX-License-Identifier: Apache-2.0
// Ends the program, with its name in `program`, if there is no driver or a call fails.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#include "driver_calls.hpp"

extern const char* const program;

[[noreturn]] inline void missing_driver(const char* symbol) {
  driver_calls::end_without_driver(program, symbol, 2);
}

inline void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s returned %s\n", program, what,
               driver_calls::error_text(answer).c_str());
  std::exit(2);
}
