// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace cuvmm::hook {

// The number of calls of one kind that are queued and not yet made. Process-wide, not per engine. A
// forked child may inherit a count of its parent's calls, and may then settle needlessly.
class QueuedCalls {
 public:
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }

  // Counts one call until it is made or turns out not to be queued. Owned by the submitted work.
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

// While there are any, more memory counts as used than the program still holds.
inline constinit QueuedCalls queued_frees;

}  // namespace cuvmm::hook
