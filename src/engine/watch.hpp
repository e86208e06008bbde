// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/calls.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

// A driver call of the program, as subsystems with pending work see it.
struct CallSite {
  Call call;
  Effect effect;
};

// Stands for any function on neither list. It has no row, so do not pass it to info().
inline constexpr Call unlisted_call = static_cast<Call>(call_count);
inline constexpr Effect every_effect = Effect::Submits | Effect::Reads | Effect::Writes |
                                       Effect::Waits | Effect::Destroys | Effect::Exposes;

// A subsystem with something pending that a program's call could notice.
class Watcher {
 public:
  // Called before the driver sees the call. May call the driver; must not throw. A result other
  // than CUDA_SUCCESS is returned to the program: the pending work could not be done first.
  virtual CUresult before(const CallSite& site) = 0;

 protected:
  ~Watcher() = default;
};

// Notifies watchers before calls with certain effects. Costs a load and a branch while no watcher
// wants that effect.
class Watch {
 public:
  [[gnu::always_inline]] CUresult before(const CallSite& site) {
    const auto wanted = wanted_.load(std::memory_order_acquire);
    if ((wanted & static_cast<std::uint8_t>(site.effect)) != 0) return notify(site);
    return CUDA_SUCCESS;
  }

  // Until end(), the watcher sees every call that has one of these effects. It may miss a call that
  // is already past before().
  void begin(Watcher& watcher, Effect effects);
  void end(Watcher& watcher);

 private:
  CUresult notify(const CallSite& site);
  void renew_wanted();

  static constexpr std::size_t most_watchers = 8;
  struct Registration {
    std::atomic<Watcher*> watcher{nullptr};
    std::atomic<std::uint8_t> effects{0};
  };
  std::atomic<std::uint8_t> wanted_{0};
  Registration registrations_[most_watchers];
};

}  // namespace cuvmm
