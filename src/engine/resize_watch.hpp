// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/watch.hpp"
#include "resize/resizer.hpp"

namespace cuvmm {

// Lets a resizer hear of every call that could notice a copy that is put off, by the calls'
// effects.
class ResizeWatch final : public Watcher, public Resizer::Notice {
 public:
  ResizeWatch(Watch& watch, const Resizer::Surroundings& around, Resize mode)
      : watch_(watch), resizer_(around, *this, mode) {}

  Resizer& resizer() { return resizer_; }

  CUresult before(const CallSite& site) override {
    const bool works = gives_work(site.effect) || has(site.effect, Effect::Exposes);
    return resizer_.before(works ? Resizer::Caller::Works : Resizer::Caller::Waits);
  }
  void begin() override { watch_.begin(*this, every_effect); }
  void end() override { watch_.end(*this); }

 private:
  Watch& watch_;
  Resizer resizer_;
};

}  // namespace cuvmm
