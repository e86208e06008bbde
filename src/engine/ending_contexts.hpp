// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "base/clock.hpp"
#include "base/not_cancelled.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// Contexts that the driver is destroying but cuvmm's records still list. A new context may get the
// same handle, and must not find the old context's records. cuvmm's own threads must not use a
// context meanwhile.
//
// Lock-free, since a lock would be held while the driver waits for a context's work.
class EndingContexts {
 public:
  // Lists one context until the end of the scope. Waits until no thread of cuvmm uses any.
  class Ending {
   public:
    Ending(EndingContexts& all, CUcontext context) : place_(all.enter(context)) {
      if (context != nullptr) all.wait_until_unused();
    }
    ~Ending() {
      if (place_ != nullptr) place_->store(nullptr, std::memory_order_release);
    }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    std::atomic<CUcontext>* const place_;
  };

  // Held by one of cuvmm's own threads while it uses contexts of the program. Not granted while one
  // is ending.
  class Use {
   public:
    explicit Use(EndingContexts& all) : all_(all) {
      all_.uses_.fetch_add(1);
      is_granted_ = !all_.lists([](CUcontext one) { return one != nullptr; });
    }
    ~Use() { all_.uses_.fetch_sub(1, std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    bool is_granted() const { return is_granted_; }

   private:
    EndingContexts& all_;
    bool is_granted_ = false;
  };

  // Call before recording a new context. Waits at most one second: if it takes longer, the handle
  // belongs not to a destroyed context but to one whose work the driver still waits for.
  void wait_until_ended(CUcontext context) const {
    wait_while([&] { return lists([&](CUcontext one) { return one == context; }); });
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
  // At most one second: in a forked child, that thread no longer exists.
  void wait_until_unused() const {
    wait_while([&] { return uses_.load() != 0; });
  }
  template <class Holds>
  static void wait_while(const Holds& holds) {
    if (!holds()) return;
    const std::uint64_t until = now_ns() + longest_ns;
    while (holds() && now_ns() < until) rest_us(20);
  }
  template <class Matches>
  bool lists(const Matches& matches) const {
    return std::any_of(places_.begin(), places_.end(),
                       [&](const auto& place) { return matches(place.load()); });
  }

  std::array<std::atomic<CUcontext>, 64> places_{};
  std::atomic<int> uses_{0};
};

}  // namespace cuvmm
