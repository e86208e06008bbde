// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace cuvmm {

// Whether whoever requested a long operation still wants it. The operation calls it from time to
// time, holding no lock.
using StillWanted = std::function<bool()>;

inline bool always_wanted() {
  return true;
}

}  // namespace cuvmm
