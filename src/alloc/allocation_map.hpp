// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "alloc/allocation.hpp"
#include "base/lock.hpp"

namespace cuvmm {

// Finds the allocation that contains an address. Lookups take no lock.
//
// An entry stays until another allocation is added over it: lookups ignore records that are no
// longer held or have been placed elsewhere. So an allocation that comes and goes at one address is
// added once.
class AllocationMap {
 public:
  // Whether an allocation may contain that address. Asked only by a lookup that takes long, because
  // many allocations below it have come and gone.
  using MayContain = bool (*)(CUdeviceptr address);
  explicit AllocationMap(MayContain may_contain = [](CUdeviceptr) { return true; });
  ~AllocationMap();
  AllocationMap(const AllocationMap&) = delete;
  AllocationMap& operator=(const AllocationMap&) = delete;

  struct Found {
    Allocation* allocation;
    AllocationFacts facts;
  };

  // The allocation must be placed and held, and must not overlap any other placed one. From then on
  // Allocation::is_listed() is true, until it is placed elsewhere.
  void add(Allocation& allocation);

  // The allocation that begins there.
  std::optional<Found> find_start(CUdeviceptr address) const;
  // The allocation that contains the byte.
  std::optional<Found> find(CUdeviceptr address) const;

 private:
  // Addresses have 48 bits. A granule is 2 MiB of them, and a span is 8192 granules.
  static constexpr unsigned granule_bits = 21;
  static constexpr unsigned span_bits = granule_bits + 13;
  static constexpr std::size_t granules_a_span = std::size_t{1} << (span_bits - granule_bits);
  static constexpr std::size_t span_count = std::size_t{1} << (48 - span_bits);
  static constexpr std::size_t lock_count = 64;

  class Granule;
  class Search;
  struct Span;

  Span* span_at(std::size_t number) const;
  Granule* granule_at(CUdeviceptr address) const;
  Granule& granule_for(CUdeviceptr address);
  void forget_starts_within(CUdeviceptr begin, CUdeviceptr end);
  Lock& lock_of(CUdeviceptr address) const;

  struct Insides;
  const MayContain may_contain_;
  const std::unique_ptr<Insides> insides_;
};

}  // namespace cuvmm
