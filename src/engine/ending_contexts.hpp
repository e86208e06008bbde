// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>

#include "base/clock.hpp"
#include "base/not_cancelled.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// Contexts that the driver is destroying but cuvmm's records still list. A new context may get the
// same handle, and must not find the old context's records.
//
// Lock-free, since a lock would be held while the driver waits for a context's work.
class EndingContexts {
 public:
  // Lists one context until the end of the scope.
  class Ending {
   public:
    Ending(EndingContexts& all, CUcontext context) : place_(all.enter(context)) {}
    ~Ending() {
      if (place_ != nullptr) place_->store(nullptr, std::memory_order_release);
    }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    std::atomic<CUcontext>* const place_;
  };

  // Call before recording a new context. Waits at most one second: if it takes longer, the handle
  // belongs not to a destroyed context but to one whose work the driver still waits for.
  void wait_until_ended(CUcontext context) const {
    if (!is_ending(context)) return;
    const std::uint64_t until = now_ns() + longest_ns;
    while (is_ending(context) && now_ns() < until) rest_us(20);
  }

 private:
  static constexpr std::uint64_t longest_ns = 1'000'000'000;

  // nullptr if too many contexts are ending at once.
  std::atomic<CUcontext>* enter(CUcontext context) {
    if (context == nullptr) return nullptr;
    for (std::atomic<CUcontext>& place : places_) {
      CUcontext nobody = nullptr;
      if (place.compare_exchange_strong(nobody, context)) return &place;
    }
    return nullptr;
  }
  bool is_ending(CUcontext context) const {
    for (const std::atomic<CUcontext>& place : places_) {
      if (place.load(std::memory_order_acquire) == context) return true;
    }
    return false;
  }

  std::array<std::atomic<CUcontext>, 64> places_{};
};

}  // namespace cuvmm
