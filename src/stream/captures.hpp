// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "driver/driver.hpp"

namespace cuvmm {

// How many captures are live in this process. While there is none, nobody needs to ask the driver.
class Captures {
 public:
  bool any() const { return live_.load(std::memory_order_acquire) > 0; }
  void began() { live_.fetch_add(1, std::memory_order_acq_rel); }
  void ended() { live_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  std::atomic<int> live_{0};
};

// While it lives, calls of this thread break no capture of another stream.
class RelaxedCapture {
 public:
  RelaxedCapture(const Driver& driver, const Captures& captures)
      : driver_(captures.any() ? &driver : nullptr) {
    if (driver_ != nullptr) driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() {
    if (driver_ != nullptr) driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver* driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace cuvmm
