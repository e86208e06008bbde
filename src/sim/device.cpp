// SPDX-License-Identifier: Apache-2.0
#include "sim/device.hpp"

#include "sim/card/shared_card.hpp"

namespace cuvmm::sim {

bool Device::take(Size bytes) {
  if (card_ != nullptr && !card_->take(number_, bytes)) return false;
  Size used = used_.load();
  do {
    if (bytes > memory_ || used > memory_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  const Size now = used + bytes;
  Size peak = peak_.load();
  while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
  }
  return true;
}

void Device::give_back(Size bytes) {
  used_.fetch_sub(bytes);
  if (card_ != nullptr) card_->give_back(number_, bytes);
}

Size Device::free() const {
  return memory_ - (card_ != nullptr ? card_->use_of(number_).held_by_all : used());
}

}  // namespace cuvmm::sim
