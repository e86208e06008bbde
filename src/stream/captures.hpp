// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// The stream on which a capture began. The capture ends no later than this stream does.
struct CaptureOrigin {
  CUcontext context = nullptr;
  CUstream handle = nullptr;
  std::uint64_t thread = 0;  // owner of the default stream; 0: the stream has its own handle

  bool is(const CaptureOrigin& other) const {
    return handle == other.handle && thread == other.thread &&
           (thread == 0 || context == other.context);
  }
};

// The captures that are live in this process. While there are none, no driver query is needed.
class Captures {
 public:
  using Origin = CaptureOrigin;

  // `sees_everything`: whether hooks report every capture that begins. Without it, they always do.
  using SeesEverything = bool (*)();
  explicit Captures(SeesEverything sees_everything = [] { return true; })
      : sees_everything_(sees_everything) {}

  bool any() const { return live_.load(std::memory_order_acquire) > 0; }
  // Also true if one may live that no hook has reported.
  bool may_live() const { return any() || !sees_everything_(); }
  // Lets programs that never capture skip work that only captures need.
  bool ever() const { return ever_.load(std::memory_order_acquire) || !sees_everything_(); }

  // The origin of the first capture that lives and is not ending; nullopt if there is none.
  std::optional<Origin> oldest() const;

  // Call before the driver begins the capture. Returns the capture's number.
  std::uint64_t began(const Origin& origin = {});
  // Call if the driver refused to begin the capture.
  void never_began(std::uint64_t number);
  // The capture that began on this stream has ended.
  void ended(const Origin& origin = {});

  class Ending;

  // While one lives, a new capture waits before it begins, for a bounded time. For short driver
  // calls that would invalidate a capture: checking any() is not enough, since a capture may begin
  // between the check and the call.
  class CaptureBlock {
   public:
    explicit CaptureBlock(const Captures& captures) : captures_(captures) {
      captures_.held_off_.fetch_add(1);
      none_is_seen_ = captures_.live_.load() == 0;
    }
    ~CaptureBlock() { captures_.held_off_.fetch_sub(1); }
    CaptureBlock(const CaptureBlock&) = delete;
    CaptureBlock& operator=(const CaptureBlock&) = delete;
    bool none_lives() const { return none_is_seen_ && captures_.sees_everything_(); }
    // None of those that hooks report.
    bool none_is_seen() const { return none_is_seen_; }

   private:
    const Captures& captures_;
    bool none_is_seen_;
  };

 private:
  struct Live {
    std::uint64_t number;
    Origin origin;
    int endings = 0;  // calls under way that may end its stream
  };
  template <class Which>
  void forget(Which which);  // the caller holds the lock
  void wait_for_blocking_calls() const;

  const SeesEverything sees_everything_;
  std::atomic<int> live_{0};
  mutable std::atomic<int> held_off_{0};
  std::atomic<bool> ever_{false};

  mutable Lock lock_{LockOrder::Captures};  // guards the members below
  std::vector<Live> all_;                   // that live, in order
  std::uint64_t last_number_ = 0;
};

// The captures that began on a stream, or in a context, that the program may be destroying.
// Construct it before the driver call, since the handle may be reused immediately. Until is_over(),
// the captures live on, unless another thread ends them.
class Captures::Ending {
 public:
  Ending(Captures& captures, CUstream stream);
  Ending(Captures& captures, CUcontext context);
  // If is_over() was not called, the stream or context stays.
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  void is_over();

 private:
  template <class Which>
  void add(Which which);
  bool has(const Live& capture) const;

  Captures& captures_;
  std::vector<std::uint64_t> numbers_;
};

// While it lives, driver calls of this thread do not invalidate captures on other streams,
// including captures that begin during its lifetime.
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
