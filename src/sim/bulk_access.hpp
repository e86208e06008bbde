// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/mman.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/size.hpp"
#include "sim/address_layout.hpp"
#include "sim/unwatched.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_read_range(void* begin, unsigned long size);
void __tsan_write_range(void* begin, unsigned long size);
}
#endif

namespace cuvmm::sim {

// Maps the pages of many bytes at once instead of by a fault for each. Kernels before 5.14 cannot.
// Chunks are files. A read fault there maps all neighbouring pages that the file already has,
// writable if the mapping is; a write fault maps only one, which takes twice as long for a chunk
// that moved.
inline void map_pages([[maybe_unused]] const void* at, [[maybe_unused]] Size size,
                      [[maybe_unused]] bool for_writing) {
#ifdef MADV_POPULATE_WRITE
  constexpr Size page = 4 * KiB;
  if (size < 16 * page) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const Size before = begin % page;
  ::madvise(reinterpret_cast<void*>(begin - before), size + before,
            for_writing && !is_of_a_chunk(begin) ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

// Surrounds a copy or a set. ThreadSanitizer checks only its first bytes: an access that races with
// a copy nearly always races with its beginning, and checking the rest took most of the time of the
// whole test suite.
class BulkAccess {
 public:
  BulkAccess(void* to, const void* from, Size size) : rest_(begin(to, from, size)) {}

 private:
  static Unwatched begin(void* to, const void* from, Size size) {
    map_pages(to, size, true);
    if (from != nullptr) map_pages(from, size, false);
#if defined(__SANITIZE_THREAD__)
    constexpr Size watched = 4 * KiB;
    __tsan_write_range(to, std::min(size, watched));
    if (from != nullptr) __tsan_read_range(const_cast<void*>(from), std::min(size, watched));
#endif
    return {};
  }

  const Unwatched rest_;
};

}  // namespace cuvmm::sim
