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

// The free bytes of [0, capacity). Adjacent free stretches are merged. A best-fit search and every
// change take logarithmic time in the number of stretches; totals are kept up to date. Not
// thread-safe.
class FreeBytes {
 public:
  enum class Begin { AllFree, AllTaken };
  explicit FreeBytes(Size capacity, Begin begin = Begin::AllFree);

  Size capacity() const { return capacity_; }
  Size free_bytes() const { return free_; }
  Size largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

  // Whether every byte is. The stretch must lie within the capacity.
  bool is_free(Stretch stretch) const;
  bool is_taken(Stretch stretch) const;

  // Best fit: the offset, a multiple of `alignment`, of `size` bytes in the smallest free stretch
  // with room for them; the lowest if several are as small.
  std::optional<Size> find(Size size, Size alignment) const;

  // How many bytes from the beginning of the stretch are free, or taken.
  Size free_at_front(Stretch stretch) const;
  Size taken_at_front(Stretch stretch) const;

  // The free or taken parts of the stretch, in address order, clipped to it.
  std::vector<Stretch> free_in(Stretch stretch) const;
  std::vector<Stretch> taken_in(Stretch stretch) const;

  void take(Stretch stretch);  // must be free
  void give(Stretch stretch);  // must be taken
  void grow(Size capacity);

  InvariantViolation violation() const;

 private:
  using ByOffset = std::map<Size, Size>;  // begin to end
  // The free stretch that begins at or before `offset`; end() if there is none.
  ByOffset::const_iterator at_or_before(Size offset) const;
  void add(Size begin, Size end);
  void remove(ByOffset::const_iterator place);

  Size capacity_;
  Size free_ = 0;
  ByOffset by_offset_;
  std::set<std::pair<Size, Size>> by_size_;  // size, begin
};

}  // namespace cuvmm
