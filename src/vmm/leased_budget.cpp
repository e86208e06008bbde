// SPDX-License-Identifier: Apache-2.0
#include "vmm/leased_budget.hpp"

#include <algorithm>

namespace cuvmm {

bool LeasedBudget::take_from_lease(Size size) {
  std::int64_t left = left_.load(std::memory_order_relaxed);
  do {
    if (left < signed_size(size)) return false;
  } while (!left_.compare_exchange_weak(left, left - signed_size(size)));
  return true;
}

bool LeasedBudget::grant(Size size) {
  if (!LocalBudget::grant(size)) return false;
  Lessor* const from = lessor();
  if (from == nullptr) return true;
  constexpr int most_tries = 4;  // other threads may take what was leased for this one
  for (int tries = 0; tries < most_tries; ++tries) {
    if (take_from_lease(size)) return true;
    const Lessor::Extended extended = from->extend(*this, size);
    if (extended == Lessor::Extended::No) break;
    if (extended == Lessor::Extended::Yes) continue;
    left_.fetch_sub(signed_size(size));  // the driver decides
    return true;
  }
  LocalBudget::take_back(size);
  return false;
}

void LeasedBudget::take_back(Size size) {
  LocalBudget::take_back(size);
  if (lessor() != nullptr) left_.fetch_add(signed_size(size));
}

Size LeasedBudget::surplus() const {
  return static_cast<Size>(std::max<std::int64_t>(left_.load(std::memory_order_relaxed), 0));
}

Size LeasedBudget::take_surplus(Size most) {
  std::int64_t left = left_.load(std::memory_order_relaxed);
  std::int64_t taken = 0;
  const std::int64_t bound = most > static_cast<Size>(INT64_MAX) ? INT64_MAX : signed_size(most);
  do {
    taken = std::clamp<std::int64_t>(left, 0, bound);
  } while (!left_.compare_exchange_weak(left, left - taken));
  leased_.fetch_sub(taken, std::memory_order_relaxed);
  return static_cast<Size>(taken);
}

// Changes both counters only by the value read, so commitments made meanwhile count the next time.
Size LeasedBudget::lease_what_is_held() {
  const std::int64_t left = left_.load();
  left_.fetch_sub(left);
  const std::int64_t held = leased_.fetch_sub(left) - left;
  return static_cast<Size>(std::max<std::int64_t>(held, 0));
}

}  // namespace cuvmm
