// SPDX-License-Identifier: Apache-2.0
#include "vmm/available_host_budget.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace cuvmm {

Size AvailableHostBudget::left() const {
  constexpr std::uint64_t a_moment = 10'000'000;  // ns
  const std::uint64_t now = now_ns();
  const std::uint64_t read_at = read_at_.load();
  if (read_at == 0 || now > read_at + a_moment) {
    left_.store(beyond_left_to_the_host(read_()));
    read_at_.store(now);
  }
  return left_.load();
}

Size AvailableHostBudget::available() const {
  return std::min(within_->available(), left());
}

// Two threads may count a grant of this moment twice, or in the next moment as well: that refuses
// memory for a moment at most.
bool AvailableHostBudget::grant(Size size) {
  Size left = this->left();
  do {
    if (size > left) return false;
  } while (!left_.compare_exchange_weak(left, left - size));
  if (grant_of(*within_, size)) return true;
  left_.fetch_add(size);
  return false;
}

}  // namespace cuvmm
