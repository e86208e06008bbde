// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_bytes.hpp"

#include <algorithm>

namespace cuvmm {

template <class Act>
void PoolBytes::for_each_alias(Stretch stretch, Act act) const {
  if (shared_.is_empty()) return;
  for (Size at = stretch.offset / granule_; at * granule_ < stretch.end(); ++at) {
    const Size begin = std::max(stretch.offset, of_granule(at).offset);
    const Size size = std::min(stretch.end(), of_granule(at).end()) - begin;
    for (const Size other : shared_.sharing(at)) {
      if (other != at) act(Stretch{other * granule_ + begin % granule_, size});
    }
  }
}

void PoolBytes::take(Stretch stretch) {
  unallocated_.take(stretch);
  reusable_.take(stretch);
  available_.take(stretch);
  for_each_alias(stretch, [&](Stretch alias) { available_.take(alias); });
}

void PoolBytes::give(Stretch stretch) {
  evict(stretch);
  reuse(stretch);
}

void PoolBytes::evict(Stretch stretch) {
  unallocated_.give(stretch);
}

void PoolBytes::reuse(Stretch evicted) {
  reusable_.give(evicted);
  available_.give(evicted);
  for_each_alias(evicted, [&](Stretch alias) { available_.give(alias); });
}

void PoolBytes::grow(Size capacity) {
  unallocated_.grow(capacity);
  reusable_.grow(capacity);
  available_.grow(capacity);
}

void PoolBytes::join(Size granule, Size with) {
  shared_.join(granule, with);
  refresh(shared_.sharing(granule));
}

void PoolBytes::leave(Size granule) {
  const std::vector<Size> shared_it = shared_.sharing(granule);
  shared_.leave(granule);
  refresh(shared_it);
}

void PoolBytes::share_nothing() {
  shared_.clear();
  available_ = reusable_;
}

void PoolBytes::find_available(Size granule, FreeBytes& available) const {
  const Stretch whole = of_granule(granule);
  for (const Stretch& free : available.free_in(whole)) available.take(free);
  for (const Stretch& free : reusable_.free_in(whole)) available.give(free);
  for (const Size other : shared_.sharing(granule)) {
    if (other == granule) continue;
    for (const Stretch& taken : reusable_.taken_in(of_granule(other))) {
      const Stretch alias{whole.offset + taken.offset % granule_, taken.size};
      for (const Stretch& free : available.free_in(alias)) available.take(free);
    }
  }
}

void PoolBytes::refresh(const std::vector<Size>& granules) {
  for (const Size at : granules) find_available(at, available_);
}

InvariantViolation PoolBytes::violation() const {
  if (InvariantViolation found = unallocated_.violation()) return found;
  if (InvariantViolation found = available_.violation()) return "available " + *found;
  if (InvariantViolation found = reusable_.violation()) return "reusable " + *found;
  FreeBytes expected = reusable_;
  shared_.for_each([&](Size granule) { find_available(granule, expected); });
  const Stretch all{0, unallocated_.capacity()};
  if (available_.free_in(all) != expected.free_in(all)) {
    return "pool bytes: available bytes do not match the bytes that are neither allocated nor "
           "evicted";
  }
  return {};
}

}  // namespace cuvmm
