// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "driver/driver.hpp"

namespace cuvmm {

// How many captures are live in this process. While there is none, nobody needs to ask the driver.
class Captures {
 public:
  bool any() const { return live_.load(std::memory_order_acquire) > 0; }
  // Programs that never capture are spared what only those need that do.
  bool ever() const { return ever_.load(std::memory_order_acquire); }

  // Before the driver is asked to begin it.
  void began() {
    ever_.store(true, std::memory_order_release);
    live_.fetch_add(1);
    if (held_off_.load() != 0) wait_for_those_who_call();
  }
  void ended() { live_.fetch_sub(1, std::memory_order_acq_rel); }

  // While it lives, none begins: for a call that would break one, and that takes no time. What
  // looks at any() alone may be too late when it calls.
  class HeldOff {
   public:
    explicit HeldOff(const Captures& captures) : captures_(captures) {
      captures_.held_off_.fetch_add(1);
      none_lives_ = captures_.live_.load() == 0;
    }
    ~HeldOff() { captures_.held_off_.fetch_sub(1); }
    HeldOff(const HeldOff&) = delete;
    HeldOff& operator=(const HeldOff&) = delete;
    bool none_lives() const { return none_lives_; }

   private:
    const Captures& captures_;
    bool none_lives_;
  };

 private:
  void wait_for_those_who_call() const;

  std::atomic<int> live_{0};
  mutable std::atomic<int> held_off_{0};
  std::atomic<bool> ever_{false};
};

// While it lives, calls of this thread break no capture of another stream, one that begins
// meanwhile included.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace cuvmm
