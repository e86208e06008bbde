// SPDX-License-Identifier: Apache-2.0
// What has to hold in an example: else it says why, as `program`, and ends.
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
