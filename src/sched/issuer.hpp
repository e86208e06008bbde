// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <list>
#include <vector>

#include "base/result.hpp"
#include "sched/driver_side.hpp"
#include "sched/failures.hpp"
#include "sched/lane_state.hpp"
#include "sched/policy.hpp"
#include "sched/settings.hpp"

namespace cuvmm {

// One device's issuing thread: chooses among the lanes that have something, and calls the driver.
// It never waits for work of the device, only looks; but for a refused record or wait.
class Issuer {
 public:
  Issuer(int device, DriverSide& side, Failures& failures, const ScheduleSettings& settings,
         const std::atomic<Schedule>& policy);
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;
  ~Issuer();

  // Its thread runs until stop(), which waits for it no longer than that. What is not issued then,
  // its lanes lose.
  Result<void> start();
  // From here on nobody is held back: all that is submitted is issued as fast as the driver takes
  // it.
  void end_pacing() { pacing_has_ended_.store(true); }
  bool stop(Duration at_most);

  // Until its client has ended and nothing of it is in flight.
  void add(Lane& lane);

  // The context is about to end: no mark and no thread of ours stays in it.
  void leave_context(CUcontext context);

  // After an operation was published.
  void look_at(const Lane& lane, std::uint64_t number) {
    const std::uint32_t sleeps = sleeps_.load(std::memory_order_seq_cst);
    if (sleeps != 0 && lane.issued() + 1 == number) wake();
  }
  void wake();

  // A caller whose turn it is calls the driver himself, and then says what he did.
  void caller_begins() { callers_.fetch_add(1, std::memory_order_acq_rel); }
  void caller_is_done(const Batch& batch, bool is_marked);

  // What is issued gets its marks, so that none comes behind a wait of the program's as if it were
  // work. Not for long.
  void wait_for_marks();

  // What the thread is in the driver with; nullptr where it is not. And since when.
  const char* call_in_progress(std::uint64_t& since) const;

  // One step of the thread, for tests without one: true where something was issued.
  bool step();

 private:
  static void* run_thread(void* issuer);
  void run();
  void abandon_lanes();
  void rest(std::uint32_t& idle);

  void take_news();
  void take_news(std::vector<CUcontext>& to_leave);
  void leave(CUcontext context);
  void gather(std::uint64_t now);
  LaneState* decide(std::uint64_t now);
  LaneState* first_needed_by(LaneState& state);
  bool is_ready(const Operation& operation) const;
  bool keeps_pace(LaneState& state, std::uint64_t now);
  bool has_stalled(const LaneState& state, std::uint64_t now) const;
  bool has_stalled_beside_others(const LaneState& state, std::uint64_t now) const;
  bool nothing_is_done(std::uint64_t now) const;
  void let_through(LaneState& state, std::uint64_t now);
  bool is_in_flight(StreamId stream) const;
  void warn_of_long_waits(std::uint64_t now);

  void issue(LaneState& state, std::uint64_t now);
  void has_failed(const Request& request, CUresult answer);
  void join_batch(LaneState& state, const Request& request, std::uint64_t estimate,
                  std::uint64_t now);
  void close_batch();
  bool may_grow(std::uint64_t now) const;
  void look_at_device(std::uint64_t now);
  void is_done(Batch& batch, std::uint64_t ran, std::uint64_t now);
  LaneState* state_of(const Lane* lane);

  const int device_;
  DriverSide& side_;
  Failures& failures_;
  const ScheduleSettings& settings_;
  const std::atomic<Schedule>& policy_;

  FutexWord sleeps_{0};
  std::atomic<std::uint32_t> callers_{0};
  std::atomic<bool> stops_{false};
  std::atomic<bool> pacing_has_ended_{false};
  std::atomic<bool> marks_are_wanted_{false};
  FutexWord has_stopped_{1};
  std::atomic<std::uint32_t> call_{no_call_now};
  std::atomic<std::uint64_t> call_since_{0};
  static constexpr std::uint32_t no_call_now = ~std::uint32_t{0};

  std::atomic<std::uint64_t> batches_{0};  // opened and closed; odd while one is open

  FutexWord contexts_left_{0};
  std::atomic<bool> has_news_{false};
  Lock lock_{LockOrder::Issuer};  // guards what follows
  std::vector<Lane*> new_lanes_;
  std::vector<Batch> new_batches_;
  std::vector<CUcontext> to_leave_;
  std::uint32_t leaves_asked_for_ = 0;

  // Of the issuing thread alone.
  std::list<LaneState> lane_states_;
  struct Waiting {
    LaneState* state;
    Operation* first;
  };
  std::vector<Waiting> waiting_;
  std::vector<Candidate> candidates_;
  std::deque<Batch> flying_;
  Batch batch_;  // open where it has a lane
  CUcontext current_ = nullptr;
  std::uint32_t in_flight_ = 0;
  bool is_paced_ = false;  // what was issued last, by what others have in flight
  std::uint64_t in_flight_ns_ = 0;
  std::uint64_t share_of_last_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t progress_at_ = 0;  // something was issued or done, or nothing waited
  std::uint64_t done_at_ = 0;      // something, last; now, where nothing is in flight
  std::uint64_t looked_at_ = 0;
  std::uint64_t batch_grew_at_ = 0;
};

}  // namespace cuvmm
