// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace cuvmm::hook {

// How many calls of a kind are queued and not made yet. Of the process, whatever engine it has; a
// forked child may go on with some that its parent has queued, and then waits for nothing now and
// again.
class QueuedCalls {
 public:
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }

  // One of them, until it is made, or turned out not to be queued. Kept by what is submitted.
  class One {
   public:
    explicit One(QueuedCalls& all) : all_(&all) {
      all.count_.fetch_add(1, std::memory_order_relaxed);
    }
    One(One&& other) noexcept : all_(std::exchange(other.all_, nullptr)) {}
    One(const One&) = delete;
    One& operator=(const One&) = delete;
    ~One() {
      if (all_ != nullptr) all_->count_.fetch_sub(1, std::memory_order_release);
    }

   private:
    QueuedCalls* all_;
  };

 private:
  std::atomic<std::size_t> count_{0};
};

// As long as there are any, more counts as used than the program has left to free.
inline constinit QueuedCalls queued_frees;

// A stream may take what others freed before the event that it waits for, and the driver does not
// know of the wait yet.
inline constinit QueuedCalls queued_waits;

}  // namespace cuvmm::hook
