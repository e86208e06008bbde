// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.hpp"
#include "stream/submission_epoch.hpp"

namespace cuvmm {

// The legacy stream waits for the earlier work of its context's blocking streams, and they wait for
// its work. This class tracks whether either side was given work since the other was last ordered
// after it. One instance serves all contexts: work of another context costs at most an unneeded
// event.
class LegacyBarrier {
 public:
  // After the driver has accepted work. Called for every launch and copy, and usually only reads.
  [[gnu::always_inline]] void legacy_submitted() { legacy_.leave(); }
  [[gnu::always_inline]] void blocking_submitted() {
    if (has_blocking_streams()) blocking_.leave();
  }
  // For calls whose stream is unknown.
  [[gnu::always_inline]] void anything_submitted() {
    legacy_submitted();
    blocking_submitted();
  }

  // One side's epoch, which the other side compares: it changes whenever the side is given work.
  // Read it before recording an event: the event then comes after all work of that epoch.
  std::uint64_t legacy_epoch() { return legacy_.take(); }
  std::uint64_t blocking_epoch() { return blocking_.take(); }

  bool has_blocking_streams() const {
    return has_blocking_streams_.load(std::memory_order_acquire);
  }
  // Call before a blocking or per-thread stream is first given work. Work may have been submitted
  // before the flag is set (calls can race), so this also leaves the note for the blocking side.
  void blocking_stream_exists() {
    if (has_blocking_streams()) return;
    const Writing writing{first_};
    has_blocking_streams_.store(true, std::memory_order_release);
    blocking_.leave();
  }

  // While one lives, a process without blocking streams stays without them: the first one waits
  // before it is given work.
  class Alone {
   public:
    explicit Alone(LegacyBarrier& barrier)
        : reading_(barrier.first_), is_alone_(!barrier.has_blocking_streams()) {}
    // If true, an event on the legacy stream delays no other stream.
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
