// SPDX-License-Identifier: Apache-2.0
// Checks a condition or a result. If it is false or an error, prints the reason after the name in
// `program`, and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cuvmm/result.hpp"
#include "driver_calls.hpp"

extern const char* const program;

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", program, what);
  std::exit(1);
}

template <class T>
T must(cuvmm::Result<T> result) {
  if (!result.ok()) must(false, result.error().message());
  return std::move(*result);
}
inline void must(const cuvmm::Result<void>& result) {
  if (!result.ok()) must(false, result.error().message());
}

inline void must(CUresult answer, const char* function) {
  if (answer == CUDA_SUCCESS) return;
  must(false, (std::string{function} + " returned " + driver_calls::error_text(answer)).c_str());
}

[[noreturn]] inline void missing_driver(const char* symbol) {
  driver_calls::end_without_driver(program, symbol, 1);
}
