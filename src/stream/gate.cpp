// SPDX-License-Identifier: Apache-2.0
#include "stream/gate.hpp"

#include <unistd.h>

#include "base/clock.hpp"
#include "base/not_cancelled.hpp"

namespace cuvmm {

bool Gate::close(std::uint64_t until) {
  constexpr useconds_t rest = 20;
  while (!closing_.try_lock()) {
    if (now_ns() >= until) return false;
    rest_us(rest);
  }
  if (barrier_.shut(until, CallBarrier::Exempt::ThisThread)) return true;
  closing_.unlock();
  return false;
}

void Gate::open() {
  barrier_.open();
  closing_.unlock();
}

}  // namespace cuvmm
