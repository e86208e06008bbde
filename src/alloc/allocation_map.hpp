// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "alloc/allocation.hpp"
#include "base/lock.hpp"

namespace cuvmm {

// Which allocation holds an address. Looking takes no lock.
//
// What was added stays until something else is added over it: a record that is no longer held, or
// lies elsewhere by now, answers nothing. So an allocation that comes and goes at one address is
// added once.
class AllocationMap {
 public:
  AllocationMap();
  ~AllocationMap();
  AllocationMap(const AllocationMap&) = delete;
  AllocationMap& operator=(const AllocationMap&) = delete;

  struct Found {
    Allocation* allocation;
    AllocationFacts facts;
  };

  // Once it is placed and held; Allocation::is_listed() then says so, until it is placed elsewhere.
  // Nothing else that is placed overlaps it.
  void add(Allocation& allocation);

  // The allocation that begins there.
  std::optional<Found> find_start(CUdeviceptr address) const;
  // The allocation that holds the byte.
  std::optional<Found> find(CUdeviceptr address) const;

 private:
  // Addresses have 48 bits: 2 MiB of them are a granule, 8192 granules a span.
  static constexpr unsigned granule_bits = 21;
  static constexpr unsigned span_bits = granule_bits + 13;
  static constexpr std::size_t granules_a_span = std::size_t{1} << (span_bits - granule_bits);
  static constexpr std::size_t span_count = std::size_t{1} << (48 - span_bits);
  static constexpr std::size_t lock_count = 64;

  class Granule;
  struct Span;

  Span* span_at(std::size_t number) const;
  Granule* granule_at(CUdeviceptr address) const;
  Granule& granule_for(CUdeviceptr address);
  void forget_starts_within(CUdeviceptr begin, CUdeviceptr end);
  Lock& lock_of(CUdeviceptr address) const;

  struct Insides;
  const std::unique_ptr<Insides> insides_;
};

}  // namespace cuvmm
