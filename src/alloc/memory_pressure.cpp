// SPDX-License-Identifier: Apache-2.0
#include "alloc/memory_pressure.hpp"

namespace cuvmm {

bool PressureTurns::Turn::take(std::uint64_t until) {
  if (is_mine_) return true;
  Holding holding{turns_.lock_};
  const std::uint64_t now = now_ns();
  const std::chrono::nanoseconds left{until > now ? until - now : 0};
  is_mine_ = turns_.given_back_.wait_for(holding, left, [this] { return !turns_.is_taken_; });
  if (is_mine_) turns_.is_taken_ = true;
  return is_mine_;
}

void PressureTurns::Turn::give_back() {
  if (!is_mine_) return;
  is_mine_ = false;
  const Holding holding{turns_.lock_};
  turns_.is_taken_ = false;
  turns_.given_back_.notify_one();
}

}  // namespace cuvmm
