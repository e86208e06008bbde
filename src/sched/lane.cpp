// SPDX-License-Identifier: Apache-2.0
#include "sched/lane.hpp"

#include <algorithm>

#include "base/spin_pause.hpp"

namespace cuvmm {
namespace {

constexpr int looks_before_waiting = 200;

}  // namespace

Lane::Lane(Client& client, int device, std::size_t capacity)
    : client_(client), device_(device), capacity_(capacity), ring_(new Operation[capacity]) {}

Operation* Lane::take_place() {
  const std::uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  if (number - issued() > capacity_) return nullptr;
  Operation& operation = at(number);
  operation.number = number;
  submitted_.store(number, std::memory_order_release);
  return &operation;
}

Operation* Lane::first() {
  return behind_first(0);
}

Operation* Lane::behind_first(std::size_t further) {
  const std::uint64_t number = issued_.load(std::memory_order_relaxed) + 1 + further;
  if (number > submitted()) return nullptr;
  Operation& operation = at(number);
  return operation.is_ready.load(std::memory_order_acquire) ? &operation : nullptr;
}

// Publishes `issued_` before it checks for waiters; a waiter does the reverse.
void Lane::first_is_issued() {
  const std::uint64_t number = issued_.load(std::memory_order_relaxed) + 1;
  Operation& operation = at(number);
  operation.action.clear();
  operation.after.clear();
  operation.is_ready.store(false, std::memory_order_relaxed);
  issued_.store(number, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  changes_.fetch_add(1);
  wake_all(changes_);
}

void Lane::abandon() {
  abandoned_.store(true, std::memory_order_seq_cst);
  changes_.fetch_add(1);
  wake_all(changes_);
}

bool Lane::wait_until_issued(std::uint64_t number, Duration at_most) {
  for (int look = 0; look < looks_before_waiting; ++look) {
    if (issued() >= number) return true;
    spin_pause();
  }
  const std::uint64_t until =
      now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds{at_most}.count());
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const std::uint32_t seen = changes_.load(std::memory_order_seq_cst);
    if (issued_.load(std::memory_order_seq_cst) >= number || is_abandoned()) break;
    const std::uint64_t now = now_ns();
    if (now >= until) break;
    wait_while(changes_, seen, Duration{(until - now) / 1000 + 1});
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return issued() >= number;
}

// Waits until half of the lane is free, so that producer and consumer do not wake each other for
// every operation.
bool Lane::wait_for_room(Duration at_most) {
  const std::uint64_t half = std::max<std::uint64_t>(1, capacity_ / 2);
  const std::uint64_t last = submitted();
  return last < half || wait_until_issued(last - half + 1, at_most);
}

}  // namespace cuvmm
