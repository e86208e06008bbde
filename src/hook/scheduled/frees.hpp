// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

namespace cuvmm::hook {

// How many frees are queued and not made yet: as long as there are any, more counts as used than
// the program has left to free. Of the process, whatever engine it has; a forked child may go on
// with some that its parent has queued, and then waits for nothing now and again.
inline constinit std::atomic<std::size_t> queued_frees{0};

inline bool any_free_is_queued() {
  return queued_frees.load(std::memory_order_acquire) != 0;
}

// The same of waits for events: a stream may take what others freed before the event that it waits
// for, and the driver does not know of the wait yet.
inline constinit std::atomic<std::size_t> queued_waits{0};

inline bool any_wait_is_queued() {
  return queued_waits.load(std::memory_order_acquire) != 0;
}

}  // namespace cuvmm::hook
