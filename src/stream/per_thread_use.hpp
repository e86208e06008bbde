// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// Tracks which threads have submitted work to their per-thread default streams. Only the owning
// thread can name such a stream, so no other thread can query its progress.
class PerThreadUse {
 public:
  // Call before the work. Costs a load and a comparison, except on a thread's first call.
  void note() {
    const std::uint64_t mine = this_thread();
    std::uint64_t seen = user_.load(std::memory_order_relaxed);
    if (seen == mine || seen == several) return;
    if (seen == nobody && user_.compare_exchange_strong(seen, mine)) return;
    user_.store(several);
  }

  // False if any other thread has submitted such work.
  bool is_by_this_thread_at_most() const {
    const std::uint64_t seen = user_.load();
    return seen == nobody || seen == this_thread();
  }

  // The calling thread's number, never reused by another thread.
  static std::uint64_t this_thread() {
    [[gnu::tls_model("initial-exec")]] static thread_local std::uint64_t mine = 0;
    static std::atomic<std::uint64_t> last{0};
    if (mine == 0) mine = last.fetch_add(1) + 1;
    return mine;
  }

 private:
  static constexpr std::uint64_t nobody = 0;
  static constexpr std::uint64_t several = ~std::uint64_t{0};
  std::atomic<std::uint64_t> user_{nobody};
};

}  // namespace cuvmm
