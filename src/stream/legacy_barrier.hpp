// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.hpp"
#include "stream/submission_epoch.hpp"

namespace cuvmm {

// The legacy stream waits for the earlier work of its context's blocking streams, and they wait for
// its. This tells whether either side was given work since the other was last ordered behind it.
// One for all contexts: another context's work costs an event that was not needed, and no more.
class LegacyBarrier {
 public:
  // After the driver has taken work. Called for every launch and copy: mostly these only read.
  void legacy_submitted() { legacy_.leave(); }
  void blocking_submitted() {
    if (has_blocking_streams()) blocking_.leave();
  }
  // For calls whose stream is not known.
  void anything_submitted() {
    legacy_submitted();
    blocking_submitted();
  }

  // A number that changes with the work of the one side, as the other side sees it. Read it before
  // an event is recorded: that event is behind all the work up to the number.
  std::uint64_t legacy_epoch() { return legacy_.take(); }
  std::uint64_t blocking_epoch() { return blocking_.take(); }

  bool has_blocking_streams() const {
    return has_blocking_streams_.load(std::memory_order_acquire);
  }
  // Before a blocking or per-thread stream is first given work. The work itself may have been
  // submitted by the time that this is called a second time, so the note is left as well.
  void blocking_stream_exists() {
    if (has_blocking_streams()) return;
    const Writing writing{first_};
    has_blocking_streams_.store(true, std::memory_order_release);
    blocking_.leave();
  }

  // While it lives, no blocking stream becomes the first to be given work.
  class Alone {
   public:
    explicit Alone(LegacyBarrier& barrier)
        : reading_(barrier.first_), is_alone_(!barrier.has_blocking_streams()) {}
    // The legacy stream stands for itself only: an event on it holds nobody else up.
    bool is_alone() const { return is_alone_; }

   private:
    const Reading reading_;
    const bool is_alone_;
  };

 private:
  SubmissionEpoch legacy_;
  SubmissionEpoch blocking_;
  std::atomic<bool> has_blocking_streams_{false};
  SharedLock first_{LockOrder::LegacyBarrier};
};

}  // namespace cuvmm
