// SPDX-License-Identifier: Apache-2.0
#include "sim/device.hpp"

namespace cuvmm::sim {

bool Device::take(Size bytes) {
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

}  // namespace cuvmm::sim
