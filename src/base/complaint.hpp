// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace cuvmm {

// What a validity walk found wrong, in words, or nothing. Every structure with an invariant has
//   Complaint complaint() const;   walks all of it
//   void check() const;            the same, and ends the process with the words
using Complaint = std::optional<std::string>;

inline void must_hold(const Complaint& complaint) {
  if (!complaint) return;
  std::fprintf(stderr, "cuvmm: broken: %s\n", complaint->c_str());
  std::abort();
}

}  // namespace cuvmm
