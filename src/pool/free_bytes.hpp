// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/invariant.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {

// Which bytes of [0, capacity) nobody has, byte by byte. Free stretches never touch: neighbours are
// one. Finding the best fit and every change cost the logarithm of their number; what is counted is
// counted as it changes. Not synchronised.
class FreeBytes {
 public:
  enum class Begin { AllFree, AllTaken };
  explicit FreeBytes(Size capacity, Begin begin = Begin::AllFree);

  Size capacity() const { return capacity_; }
  Size free_bytes() const { return free_; }
  Size largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  // Every byte of it. The stretch fits.
  bool is_free(Stretch stretch) const;
  bool is_taken(Stretch stretch) const;

  // Where so many bytes fit at a multiple of `alignment`: in the smallest free stretch that has the
  // room, the first of several.
  std::optional<Size> find(Size size, Size alignment) const;

  // How many bytes are free, or taken, from the stretch's first one on.
  Size free_at_front(Stretch stretch) const;
  Size taken_at_front(Stretch stretch) const;

  // What is free or taken in the stretch, upwards, cut at its ends.
  std::vector<Stretch> free_in(Stretch stretch) const;
  std::vector<Stretch> taken_in(Stretch stretch) const;

  void take(Stretch stretch);  // is free
  void give(Stretch stretch);  // is taken
  void grow(Size capacity);

  InvariantViolation violation() const;

 private:
  using ByOffset = std::map<Size, Size>;  // where it begins, where it ends
  // The free stretch that begins at or before `offset`; end() where there is none.
  ByOffset::const_iterator at_or_before(Size offset) const;
  void add(Size begin, Size end);
  void remove(ByOffset::const_iterator place);

  Size capacity_;
  Size free_ = 0;
  ByOffset by_offset_;
  std::set<std::pair<Size, Size>> by_size_;  // size, where it begins
};

}  // namespace cuvmm
