// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pool/free_bytes.hpp"
#include "pool/shared_granules.hpp"

namespace cuvmm {

// Tracks which bytes of a pool are allocated, which granules share a chunk, and which of the
// unallocated bytes are available to allocations.
//
// Invariant: each byte of a chunk is allocated at one address at most. Bytes allocated in a granule
// are withheld in all granules that share its chunk, so an allocation never needs bytes in use, and
// no granule with live contents ever has to be remapped to make room for one. Not thread-safe.
class PoolBytes {
 public:
  PoolBytes(Size capacity, Size granule)
      : granule_(granule), unallocated_(capacity), reusable_(capacity), available_(capacity) {}

  const FreeBytes& unallocated() const { return unallocated_; }
  // The unallocated bytes that are neither withheld nor just evicted.
  const FreeBytes& available() const { return available_; }
  bool is_withheld(Stretch stretch) const {
    return reusable_.is_free(stretch) && !available_.is_free(stretch);
  }
  const SharedGranules& shared() const { return shared_; }

  void take(Stretch stretch);  // must be available
  void give(Stretch stretch);  // must be allocated
  // The same, but the bytes are not available again until reuse() is called for them.
  void evict(Stretch stretch);
  void reuse(Stretch evicted);
  bool is_evicted(Stretch stretch) const {  // at least some of it
    return unallocated_.is_free(stretch) && !reusable_.is_free(stretch);
  }
  bool are_any_evicted() const { return reusable_.free_bytes() != unallocated_.free_bytes(); }
  void grow(Size capacity);

  // Makes `granule`, which must be alone, share the chunk of `with`. The bytes allocated in it must
  // not overlap those allocated in granules that share the chunk already.
  void join(Size granule, Size with);
  void leave(Size granule);
  void share_nothing();

  InvariantViolation violation() const;

 private:
  Stretch of_granule(Size at) const { return {at * granule_, granule_}; }
  // Calls `act(Stretch)` for each part of other granules that aliases memory of the stretch.
  template <class Act>
  void for_each_alias(Stretch stretch, Act act) const;
  void find_available(Size granule, FreeBytes& available) const;
  void refresh(const std::vector<Size>& granules);

  const Size granule_;
  FreeBytes unallocated_;
  FreeBytes reusable_;  // unallocated and not just evicted
  FreeBytes available_;
  SharedGranules shared_;
};

}  // namespace cuvmm
