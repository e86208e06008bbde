// SPDX-License-Identifier: Apache-2.0
#include "base/interprocess_memory.hpp"

#include <atomic>
#include <cstdint>

#include "base/in_children.hpp"

namespace cuvmm {
namespace {

constexpr std::uint32_t closed = 1U << 31;
constinit std::atomic<std::uint32_t> count_or_closed{0};

// A forked child has none of its parent's memory.
void start_anew() {
  count_or_closed.store(0);
}
constinit InChildren starts_anew{&start_anew};

}  // namespace

bool InterprocessMemory::add() {
  starts_anew.ensure();
  std::uint32_t count = count_or_closed.load();
  do {
    if (count == closed) return false;
  } while (!count_or_closed.compare_exchange_weak(count, count + 1));
  return true;
}

// In a forked child, memory of its parent may end that is not counted any more.
void InterprocessMemory::remove() {
  std::uint32_t count = count_or_closed.load();
  do {
    if (count == closed || count == 0) return;
  } while (!count_or_closed.compare_exchange_weak(count, count - 1));
}

bool InterprocessMemory::close() {
  starts_anew.ensure();
  std::uint32_t none = 0;
  return count_or_closed.compare_exchange_strong(none, closed) || none == closed;
}

void InterprocessMemory::reopen() {
  std::uint32_t expected = closed;
  count_or_closed.compare_exchange_strong(expected, 0);
}

}  // namespace cuvmm
