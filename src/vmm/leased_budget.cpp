// SPDX-License-Identifier: Apache-2.0
#include "vmm/leased_budget.hpp"

#include <algorithm>

#include "trace/record_event.hpp"

namespace cuvmm {

LeasedBudget::LeasedBudget(Size limit, std::int16_t device)
    : LocalBudget(limit), own_limit_(limit), device_(device) {
  if (limit != unlimited) record_limit();
}

void LeasedBudget::set_leased_limit(Size limit) {
  limit = std::min(limit, own_limit_);
  if (limit == this->limit()) return;
  set_limit(limit);
  record_limit();
}

void LeasedBudget::record_limit() const {
  if (device_ == no_device) return;
  CUVMM_TRACE(.event = TraceEvent::Limit, .device = device_, .size = limit(),
              .other = held_bytes());
}

bool LeasedBudget::hold_leased(Size size) {
  const std::optional<Size> held = hold(size, std::min(most(), may_hold_.load()));
  if (!held) return false;
  if (*held <= may_hold_.load()) return true;
  take_back(size);
  return false;
}

bool LeasedBudget::grant(Size size) {
  Lessor* const from = lessor();
  if (from == nullptr) return LocalBudget::grant(size);
  constexpr int most_tries = 4;  // other threads may take what was leased for this one
  for (int tries = 0; tries < most_tries; ++tries) {
    if (hold_leased(size)) return true;
    if (available() < size) return false;
    const Lessor::Extended extended = from->extend(*this, size);
    if (extended == Lessor::Extended::No) return false;
    // The driver decides.
    if (extended == Lessor::Extended::NobodyLeases) return LocalBudget::grant(size);
  }
  return false;
}

// Raises may_hold_ after the held bytes (and forget_native() lowers it before them), so that native
// memory never counts as surplus.
void LeasedBudget::note_native(Size size) {
  LocalBudget::note_native(size);
  may_hold_.fetch_add(size);
}

void LeasedBudget::forget_native(Size size) {
  may_hold_.fetch_sub(size);
  LocalBudget::forget_native(size);
}

Size LeasedBudget::surplus() const {
  const Size may = may_hold_.load();
  const Size held = this->held();
  return may > held ? may - held : 0;
}

Size LeasedBudget::deficit() const {
  const Size may = may_hold_.load();
  const Size held = this->held();
  return held > may ? held - may : 0;
}

Size LeasedBudget::take_surplus(Size most) {
  const Size taken = std::min(most, surplus());
  const Size may = may_hold_.fetch_sub(taken) - taken;
  const Size held = this->held();
  const Size kept = std::min(taken, held > may ? held - may : 0);  // committed meanwhile
  may_hold_.fetch_add(kept);
  leased_.fetch_sub(taken - kept, std::memory_order_relaxed);
  return taken - kept;
}

Size LeasedBudget::lease_what_is_held() {
  take_surplus(unlimited);
  const Size lacking = deficit();
  if (lacking != 0) add_lease(lacking);
  return leased_.load(std::memory_order_relaxed);
}

}  // namespace cuvmm
