// SPDX-License-Identifier: Apache-2.0
#include "vmm/budget.hpp"

namespace cuvmm {

Commitment::~Commitment() {
  if (budget_ != nullptr) budget_->take_back(size_);
}

Result<Commitment> Budget::commit(Size size) {
  if (grant(size)) return Commitment{*this, size};
  return Error{.kind = ErrorKind::OutOfMemory,
               .doing = "commit memory",
               .subject = "beyond the limit",
               .asked = size,
               .available = available()};
}

Size Budget::missing(const Error& refused, Size wanted) const {
  const bool refused_by_driver = refused.driver_code != 0;
  const Size room = refused_by_driver ? 0 : available();
  // If the limit has room for all of it, the limit did not refuse it: a lessor did.
  return wanted > room ? saturating_sum(wanted - room, refused_by_driver ? 0 : excess()) : wanted;
}

std::optional<Size> LocalBudget::hold(Size size, Size most) {
  Size held = held_.load(std::memory_order_relaxed);
  do {
    if (held > most || size > most - held) return {};
  } while (!held_.compare_exchange_weak(held, held + size));
  return held + size;
}

void LocalBudget::take_back(Size size) {
  held_.fetch_sub(size);
}

void LocalBudget::note_native(Size size) {
  held_.fetch_add(size);
  native_.fetch_add(size, std::memory_order_relaxed);
}

void LocalBudget::forget_native(Size size) {
  native_.fetch_sub(size, std::memory_order_relaxed);
  held_.fetch_sub(size);
}

Size LocalBudget::committed_bytes() const {
  const Size native = native_bytes();
  const Size held = held_.load(std::memory_order_relaxed);
  return held > native ? held - native : 0;
}

Size LocalBudget::available() const {
  const Size most = this->most();
  if (most == unlimited) return unlimited;
  const Size held = held_.load(std::memory_order_relaxed);
  return most > held ? most - held : 0;
}

Size LocalBudget::excess() const {
  const Size most = limit();
  const Size held = held_.load(std::memory_order_relaxed);
  return held > most ? held - most : 0;
}

}  // namespace cuvmm
