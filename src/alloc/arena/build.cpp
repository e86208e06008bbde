// SPDX-License-Identifier: Apache-2.0
#include "alloc/arena/build.hpp"

#include <chrono>

#include "base/clock.hpp"

namespace cuvmm::arena {
namespace {

std::chrono::nanoseconds time_left(std::uint64_t until) {
  const std::uint64_t now = now_ns();
  return std::chrono::nanoseconds(until > now ? until - now : 0);
}

}  // namespace

BuildTurns::Turn::~Turn() {
  --turns_.working_;
  if (is_mine_) turns_.is_taken_ = false;
  turns_.changed_.notify_all();
}

bool BuildTurns::Turn::take_now() {
  if (!is_mine_ && turns_.is_taken_) return false;
  is_mine_ = turns_.is_taken_ = true;
  return true;
}

bool BuildTurns::Turn::take(Holding& holding, std::uint64_t until) {
  --turns_.working_;
  turns_.changed_.notify_all();
  turns_.changed_.wait_for(holding, time_left(until), [&] { return !turns_.is_taken_; });
  ++turns_.working_;
  return take_now();
}

bool BuildTurns::Turn::wait_for_others(Holding& holding, std::uint64_t until) {
  if (turns_.working_ == 1) return false;
  return turns_.changed_.wait_for(holding, time_left(until), [&] { return turns_.working_ == 1; });
}

}  // namespace cuvmm::arena
