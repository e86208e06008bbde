// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pool/free_bytes.hpp"
#include "pool/shared_granules.hpp"

namespace cuvmm {

// Which bytes of a pool are allocated, which granules share a chunk, and which of the other bytes
// an allocation may have.
//
// Invariant: each byte of a chunk is allocated at one address at most. What is allocated in a
// granule is withheld in all that share its chunk, so an allocation never needs bytes that somebody
// has, and no granule with live contents ever has to be mapped anew to make room for one. Not
// synchronised.
class PoolBytes {
 public:
  PoolBytes(Size capacity, Size granule)
      : granule_(granule), unallocated_(capacity), available_(capacity) {}

  const FreeBytes& unallocated() const { return unallocated_; }
  // Those of them that are not withheld.
  const FreeBytes& available() const { return available_; }
  bool is_withheld(Stretch stretch) const {
    return unallocated_.is_free(stretch) && !available_.is_free(stretch);
  }
  const SharedGranules& shared() const { return shared_; }

  void take(Stretch stretch);  // is available
  void give(Stretch stretch);  // is allocated
  void grow(Size capacity);

  // From now on `granule`, which was alone, has the chunk of `with`. No byte that is allocated in
  // it is allocated in a granule that has the chunk already.
  void join(Size granule, Size with);
  void leave(Size granule);
  void share_nothing();

  InvariantViolation violation() const;

 private:
  Stretch of_granule(Size at) const { return {at * granule_, granule_}; }
  // What in the stretch has the same memory in other granules: `act(Stretch)`.
  template <class Act>
  void for_each_alias(Stretch stretch, Act act) const;
  void find_available(Size granule, FreeBytes& available) const;
  void refresh(const std::vector<Size>& granules);

  const Size granule_;
  FreeBytes unallocated_;
  FreeBytes available_;
  SharedGranules shared_;
};

}  // namespace cuvmm
