// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// The stream that a capture began on, and that it ends with at the latest.
struct CaptureOrigin {
  CUcontext context = nullptr;
  CUstream handle = nullptr;
  std::uint64_t thread = 0;  // whose default stream it is; 0: one with a handle of its own

  bool is(const CaptureOrigin& other) const {
    return handle == other.handle && thread == other.thread &&
           (thread == 0 || context == other.context);
  }
};

// Which captures are live in this process. While there is none, nobody needs to ask the driver.
class Captures {
 public:
  using Origin = CaptureOrigin;

  bool any() const { return live_.load(std::memory_order_acquire) > 0; }
  // Programs that never capture are spared what only those need that do.
  bool ever() const { return ever_.load(std::memory_order_acquire); }

  // Before the driver is asked to begin it. Its number.
  std::uint64_t began(const Origin& origin = {});
  // The driver has refused to begin it.
  void never_began(std::uint64_t number);
  // The one that began there.
  void ended(const Origin& origin = {});

  class Ending;

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
  struct Live {
    std::uint64_t number;
    Origin origin;
  };
  void wait_for_those_who_call() const;

  std::atomic<int> live_{0};
  mutable std::atomic<int> held_off_{0};
  std::atomic<bool> ever_{false};

  Lock lock_{LockOrder::Captures};  // guards what follows
  std::vector<Live> origins_;       // of those that are live and not ending, in order
  std::uint64_t last_number_ = 0;
};

// Those that began on a stream, or in a context, that the program ends. Made before the driver ends
// it, since another may have its handle at once; they are live until it has.
class Captures::Ending {
 public:
  Ending(Captures& captures, CUstream stream);
  Ending(Captures& captures, CUcontext context);
  // Where the driver has not ended it they go on.
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  void is_over();

 private:
  Captures& captures_;
  std::vector<Live> ending_;
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
