// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "vmm/chunk_ref.hpp"
#include "vmm/leased_budget.hpp"

namespace cuvmm {

// Memory that the program takes from the driver itself, charged to its device's budget while this
// exists. The budget must outlive it.
class NativeCharge {
 public:
  NativeCharge() = default;  // charges nothing
  // Within the limit and the lease; OutOfMemory if they have no room. Without a budget nothing is
  // charged.
  static Result<NativeCharge> within_limit(LeasedBudget* budget, Size size);
  // Charges the budget even beyond the limit.
  static NativeCharge beyond_limit(LeasedBudget* budget, Size size);

  NativeCharge(NativeCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        size_(other.size_),
        is_committed_(other.is_committed_) {}
  NativeCharge& operator=(NativeCharge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(size_, other.size_);
    std::swap(is_committed_, other.is_committed_);
    return *this;
  }
  ~NativeCharge();

 private:
  NativeCharge(LeasedBudget* budget, Size size, bool is_committed)
      : budget_(budget), size_(size), is_committed_(is_committed) {}

  LeasedBudget* budget_ = nullptr;
  Size size_ = 0;
  bool is_committed_ = false;  // taken from the lease, and not beside it
};

// A chunk that is charged until its last reference has gone and the driver has released it.
ChunkRef adopt_charged(Chunk chunk, NativeCharge charge);

}  // namespace cuvmm
