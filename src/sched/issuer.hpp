// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <list>
#include <vector>

#include "base/result.hpp"
#include "sched/driver_side.hpp"
#include "sched/failures.hpp"
#include "sched/lane_state.hpp"
#include "sched/launch_queues.hpp"
#include "sched/policy.hpp"
#include "sched/settings.hpp"

namespace cuvmm {

// One device's issuing thread: it chooses among the lanes that have operations ready, and calls the
// driver. It polls the device and never waits for its work, except after a refused record or wait.
class Issuer {
 public:
  Issuer(int device, DriverSide& side, Failures& failures, const ScheduleSettings& settings,
         const std::atomic<Schedule>& policy);
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;
  ~Issuer();

  // start() starts the thread, and stop() waits for it to end, for at most `at_most`. Operations
  // not issued by then are lost, and their lanes abandoned.
  Result<void> start();
  // Ends pacing: from now on every operation is issued as fast as the driver accepts it.
  void end_pacing() { pacing_has_ended_.store(true); }
  bool stop(Duration at_most);

  // Adds a lane, which stays until its client has ended and none of its operations is in flight.
  void add(Lane& lane);

  // The context is about to end: removes all marks, and the issuing thread, from it.
  void leave_context(CUcontext context);
  // It has ended. If the thread was too busy to leave it in time, it makes no more driver calls
  // about it.
  void context_ended(CUcontext context);

  // Call after publishing an operation.
  void look_at(const Lane& lane, std::uint64_t number) {
    const std::uint32_t sleeps = sleeps_.load(std::memory_order_seq_cst);
    if (sleeps != 0 && lane.issued() + 1 == number) wake();
  }
  void wake();

  // A caller whose turn it is makes the driver call itself, and reports the batch when it has
  // finished.
  void caller_begins() { callers_.fetch_add(1, std::memory_order_acq_rel); }
  void caller_is_done(const Batch& batch, bool is_marked);

  // Waits until the issued operations have their marks, so that no mark is recorded behind one of
  // the program's waits and counts that as work, and no stream that has been waited for has work
  // again. Gives up if the thread is stuck in the driver.
  void wait_for_marks();

  // The driver call that the thread is in, and since when; nullptr if it is in none.
  const char* call_in_progress(std::uint64_t& since) const;

  // One step of the thread, for tests that run without it. True if something was issued.
  bool step();

 private:
  static void* run_thread(void* issuer);
  void run();
  void abandon_lanes();
  void rest(std::uint32_t& idle);

  void take_news();
  struct Leaving {
    CUcontext context;
    bool has_ended;
  };
  void take_news(std::vector<Leaving>& to_leave);
  void leave(const Leaving& leaving);
  void gather(std::uint64_t now);
  LaneState* decide(std::uint64_t now);
  LaneState* first_needed_by(LaneState& state);
  bool is_ready(const Operation& operation) const;
  bool has_room_for(const LaneState& state, const Operation& operation);
  bool keeps_pace(LaneState& state, std::uint64_t now);
  bool has_stalled(const LaneState& state, std::uint64_t now) const;
  bool has_stalled_beside_others(const LaneState& state, std::uint64_t now,
                                 std::uint64_t times_patience) const;
  bool nothing_is_done(std::uint64_t now) const;
  void let_through(LaneState& state, std::uint64_t now);
  void find_held_streams(std::uint64_t now);
  bool is_held(const Operation& operation) const;
  const Batch* first_of(StreamId stream) const;
  bool is_in_flight(StreamId stream) const;
  void warn_of_long_waits(std::uint64_t now);

  void issue(LaneState& state, std::uint64_t now);
  std::uint64_t submit_turn(StreamId stream);
  void has_failed(const Request& request, CUresult answer);
  void join_batch(LaneState& state, const Request& request, std::uint64_t estimate,
                  std::uint64_t now);
  void close_batch();
  bool join_last_of_long_queue(const Batch& batch);
  void drop_batch();
  void mark_queue(const LaneState& state, const StreamState& stream);
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

  std::atomic<std::uint64_t> batches_{0};  // openings plus closings; odd while one is open

  FutexWord contexts_left_{0};
  std::atomic<bool> has_news_{false};
  Lock lock_{LockOrder::Issuer};  // guards what follows
  std::vector<Lane*> new_lanes_;
  std::vector<Batch> new_batches_;
  std::vector<Leaving> to_leave_;
  std::uint32_t leaves_asked_for_ = 0;

  // The members below belong to the issuing thread.
  std::list<LaneState> lane_states_;
  struct Waiting {
    LaneState* state;
    Operation* first;
  };
  std::vector<Waiting> waiting_;
  std::vector<Candidate> candidates_;
  std::deque<Batch> flying_;
  Batch batch_;  // open if it has a lane
  LaunchQueues queues_;
  CUcontext current_ = nullptr;
  Load in_flight_;
  Load held_;  // as much of it as is on streams that make no progress
  std::uint32_t held_callers_ = 0;
  bool is_paced_ = false;  // whether the last choice was paced by the work of all lanes
  std::uint64_t share_of_last_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t progress_at_ = 0;  // last time that something was issued or done, or nothing waited
  std::uint64_t done_at_ = 0;      // last completion; the current time while nothing is in flight
  std::uint64_t looked_at_ = 0;
  std::uint64_t batch_grew_at_ = 0;
};

}  // namespace cuvmm
