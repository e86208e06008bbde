// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/watch.hpp"
#include "resize/resizer.hpp"
#include "stream/call_barrier.hpp"

namespace cuvmm {

// Notifies a resizer of every call that could notice a deferred copy, judging by the calls'
// effects.
class ResizeWatch final : public Watcher, public Resizer::Notice {
 public:
  // `calls`: the barrier that every call that touches memory enters.
  ResizeWatch(Watch& watch, CallBarrier& calls, const Resizer::Dependencies& dependencies,
              Resize mode)
      : watch_(watch), calls_(calls), resizer_(dependencies, *this, mode) {}

  Resizer& resizer() { return resizer_; }

  CUresult before(const CallSite& site) override {
    const bool works = (gives_work(site.effect) || has(site.effect, Effect::Exposes)) &&
                       site.call != Call::cuMemFreeAsync;  // its work needs no deferred copy
    if (works) return resizer_.before(Resizer::Caller::Works);
    // Such a call touches no memory itself, so it may be outside the barrier; but it makes the
    // resizer run the deferred copies.
    const CallBarrier::Pass pass{calls_};
    return resizer_.before(Resizer::Caller::Waits);
  }
  void begin() override { watch_.begin(*this, every_effect); }
  void end() override { watch_.end(*this); }

 private:
  Watch& watch_;
  CallBarrier& calls_;
  Resizer resizer_;
};

}  // namespace cuvmm
