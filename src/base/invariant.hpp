// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace cuvmm {

// A description of what a consistency check found wrong, or nothing. Every structure with an
// invariant has
//   InvariantViolation violation() const;   checks the whole structure
//   void check() const;                     the same, but aborts with the description
using InvariantViolation = std::optional<std::string>;

inline void must_hold(const InvariantViolation& violation) {
  if (!violation) return;
  std::fprintf(stderr, "cuvmm: broken: %s\n", violation->c_str());
  std::abort();
}

}  // namespace cuvmm
