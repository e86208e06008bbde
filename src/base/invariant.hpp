// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace cuvmm {

// What a validity walk found wrong, in words, or nothing. Every structure with an invariant has
//   InvariantViolation violation() const;   walks all of it
//   void check() const;            the same, and ends the process with the words
using InvariantViolation = std::optional<std::string>;

inline void must_hold(const InvariantViolation& violation) {
  if (!violation) return;
  std::fprintf(stderr, "cuvmm: broken: %s\n", violation->c_str());
  std::abort();
}

}  // namespace cuvmm
