// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

#include <cstddef>

namespace cuvmm::test {

inline std::size_t heap_in_use() {
#if __GLIBC_PREREQ(2, 33)
  return ::mallinfo2().uordblks;
#else
  return static_cast<unsigned>(::mallinfo().uordblks);
#endif
}

}  // namespace cuvmm::test
