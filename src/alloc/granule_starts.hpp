// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "alloc/allocation_map.hpp"
#include "alloc/bit_line.hpp"

namespace cuvmm {

// A search downwards for the allocation that contains an address.
class AllocationMap::Search {
 public:
  Search(CUdeviceptr address, MayContain may_contain)
      : address_(address), may_contain_(may_contain) {}
  CUdeviceptr address() const { return address_; }
  // It has passed places where nothing begins any longer.
  void pass(unsigned places = 1) {
    if (has_asked_ || (passed_ += places) < many) return;
    has_asked_ = true;
    is_in_vain_ = !may_contain_(address_);
  }
  bool is_in_vain() const { return is_in_vain_; }

 private:
  static constexpr unsigned many = 16;
  const CUdeviceptr address_;
  const MayContain may_contain_;
  unsigned passed_ = 0;
  bool has_asked_ = false;
  bool is_in_vain_ = false;
};

// The allocations that begin within 2 MiB of addresses: usually one; otherwise a small hash table
// and, if there are many, a line of bits that marks where they begin. A record that has been placed
// elsewhere counts as absent, and its slot may be reused. Tables only grow, at least doubling each
// time; old ones are kept for concurrent readers.
//
// With 10^6 allocations every byte here costs a megabyte, so a lone allocation needs only one word.
class AllocationMap::Granule {
 public:
  Granule() = default;
  ~Granule();
  Granule(const Granule&) = delete;
  Granule& operator=(const Granule&) = delete;

  // add() and forget() are called by one thread at a time.
  void add(Allocation& allocation);
  // Nothing begins in [begin, end) any longer. Both are addresses of this granule.
  void forget(CUdeviceptr begin, CUdeviceptr end);

  // The lookups are thread-safe.
  std::optional<Found> find_start(CUdeviceptr address) const;
  // The allocation with the highest start at or below the address searched for. `base` is the
  // granule's first address, and that address is not below it.
  std::optional<Found> last_before(CUdeviceptr base, Search& search) const;

 private:
  struct Table;
  static constexpr std::uintptr_t is_table = 1;

  Allocation* alone() const;
  Table* table() const;
  void grow(CUdeviceptr address, std::size_t alive);

  std::atomic<std::uintptr_t> what_{0};  // 0, an Allocation*, or a Table* with the lowest bit set
};

}  // namespace cuvmm
