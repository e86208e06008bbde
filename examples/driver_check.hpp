// SPDX-License-Identifier: Apache-2.0
// Ends the program, with its name in `program`, if there is no driver or a call fails.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#include "driver_calls.hpp"

extern const char* const program;

[[noreturn]] inline void missing_driver(const char* symbol) {
  std::fprintf(stderr, "%s: no driver with %s; `cuvmm run --sim` has a simulated one\n", program,
               symbol);
  std::exit(2);
}

inline void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  const char* name = nullptr;
  CALL(cuGetErrorName)(answer, &name);
  std::fprintf(stderr, "%s: %s returned %s (CUDA error %d)\n", program, what,
               name != nullptr ? name : "an unknown error", static_cast<int>(answer));
  std::exit(2);
}
