// SPDX-License-Identifier: Apache-2.0
// Checks a condition. If it does not hold, prints the reason after the name in `program`, and ends
// the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cuvmm/result.hpp"

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

[[noreturn]] inline void missing_driver(const char* symbol) {
  std::fprintf(stderr, "%s: the driver has no %s\n", program, symbol);
  std::exit(1);
}
