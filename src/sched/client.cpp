// SPDX-License-Identifier: Apache-2.0
#include "sched/client.hpp"

namespace cuvmm {

void Client::count_issued(std::uint64_t queued_ns) {
  operations_.fetch_add(1, std::memory_order_relaxed);
  queued_ns_.fetch_add(queued_ns, std::memory_order_relaxed);
  std::uint64_t longest = longest_queued_ns_.load(std::memory_order_relaxed);
  while (longest < queued_ns &&
         !longest_queued_ns_.compare_exchange_weak(longest, queued_ns, std::memory_order_relaxed)) {
  }
}

ClientFigures Client::figures() const {
  return {.operations = operations_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .queued_ns = queued_ns_.load(std::memory_order_relaxed),
          .longest_queued_ns = longest_queued_ns_.load(std::memory_order_relaxed),
          .device_ns = device_ns_.load(std::memory_order_relaxed),
          .waits_for_room = waits_for_room_.load(std::memory_order_relaxed)};
}

}  // namespace cuvmm
