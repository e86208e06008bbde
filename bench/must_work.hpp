// SPDX-License-Identifier: Apache-2.0
// For benchmarks that are plain programs over the driver: if a call fails, the program names the
// call and ends.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "examples/driver_calls.hpp"

namespace cuvmm::bench {

[[noreturn]] inline void missing_driver(const char* symbol) {
  std::fprintf(stderr, "no driver with %s\n", symbol);
  std::exit(1);
}

inline void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s answered %d\n", what, static_cast<int>(answer));
  std::exit(1);
}

}  // namespace cuvmm::bench

#define MUST_WORK(name, ...) ::cuvmm::bench::check(CALL(name)(__VA_ARGS__), #name)

namespace cuvmm::bench {

// Makes the first device's primary context current.
inline void use_device() {
  CUcontext context = nullptr;
  MUST_WORK(cuInit, 0);
  MUST_WORK(cuDevicePrimaryCtxRetain, &context, 0);
  MUST_WORK(cuCtxSetCurrent, context);
}

}  // namespace cuvmm::bench
