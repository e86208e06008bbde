// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "alloc/allocation_map.hpp"
#include "alloc/bit_line.hpp"

namespace cuvmm {

// The allocations that begin within 2 MiB of addresses: most often one; else a small hash table,
// and where there are many, a line of bits that says where. A record that lies elsewhere by now is
// as good as none, and its slot another one's. Tables only grow, each to twice its size or more,
// and an old one stays for those who are reading it.
//
// At 10^6 allocations every byte is a megabyte: one that is alone here takes none but this word.
class AllocationMap::Granule {
 public:
  Granule() = default;
  ~Granule();
  Granule(const Granule&) = delete;
  Granule& operator=(const Granule&) = delete;

  // One thread at a time.
  void add(Allocation& allocation);
  // Nothing begins any more in [begin, end), addresses of this granule.
  void forget(CUdeviceptr begin, CUdeviceptr end);

  // Any thread.
  std::optional<Found> find_start(CUdeviceptr address) const;
  // The one with the highest start at or below the address, which is not below the granule, whose
  // first address is `base`.
  std::optional<Found> last_before(CUdeviceptr base, CUdeviceptr address) const;

 private:
  struct Table;
  static constexpr std::uintptr_t is_table = 1;

  Allocation* alone() const;
  Table* table() const;
  void grow(CUdeviceptr address, std::size_t alive);

  std::atomic<std::uintptr_t> what_{0};  // nothing, an Allocation, or a Table with the lowest bit
};

}  // namespace cuvmm
