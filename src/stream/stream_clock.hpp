// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "stream/captures.hpp"
#include "stream/event_places.hpp"
#include "stream/gate.hpp"
#include "stream/legacy_barrier.hpp"
#include "stream/stream_order.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// How far streams had come at one moment. Stays valid if a stream ends before reached() or
// waited_for() is called.
class Horizon {
 public:
  explicit Horizon(const StreamTable& table) : table_(table) {}

  bool is_empty() const { return places_.empty(); }
  void add(const StreamState& state) {
    if (state.has_unwaited()) add({state.id, state.tick.load()});
  }
  void add(const FreeTicket& place) { places_.push_back(place); }
  // The device has completed all of it.
  void reached() const { table_.note_done(places_, StreamTable::Told::ByTheDevice); }
  // In addition, the program has waited for it.
  void waited_for() const { table_.note_done(places_, StreamTable::Told::ByAWait); }

 private:
  const StreamTable& table_;
  std::vector<FreeTicket> places_;
};

// Knows how the work of streams is ordered and how far the device has come, from the program's
// calls on its streams and events and from cuvmm's own events. docs/internals/stream_order.md
// states the rules.
//
// A thread records cuvmm's events on a stream only while it submits an operation to that stream,
// ends it, is about to capture it, or frees memory behind all work of the context. Recording waits
// while the stream's launch queue is full, and on the legacy stream it delays every blocking
// stream. A caller that needs to know more about a stream's progress requests marks, which the
// stream's next frees then leave.
//
// The hooks report the program's own calls, after the driver's answer unless stated otherwise.
class StreamClock final : public StreamOrder {
 public:
  // The parts of the engine that track the program's calls. They must outlive the clock.
  struct Program {
    const Captures& captures;
    Gate& gate;
    LegacyBarrier& legacy;
    std::function<bool()> sees_everything;
  };
  StreamClock(const Driver& driver, Program program)
      : driver_(driver), program_(std::move(program)), table_(driver, &program_.legacy) {}

  ~StreamClock() override { table_.drop_events(); }
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  StreamTable& table() { return table_; }

  class Operation;

  // The ticket of a free that comes after all work of the context: the program may expect such a
  // call to wait for that work.
  FreeTicket ticket_of_all(CUcontext context);
  // The ticket of a free by a call outside any stream's order: the program is done with the memory,
  // but work ordered before its allocation on that stream may still be running.
  FreeTicket ticket_of_allocation(StreamId allocated_on);

  bool is_before(const FreeTicket& freed, StreamId asker) const override;
  bool is_done(const FreeTicket& freed) const override;
  bool was_waited_for(const FreeTicket& freed) const override;
  bool is_across_barrier(const FreeTicket& freed, StreamId asker) const override;
  void look(StreamId stream) override;
  void mark_own(StreamId asker) override;
  void memory_is_short() override { is_short_.store(true, std::memory_order_relaxed); }
  bool can_follow(const FreeTicket& freed, StreamId asker) const override;
  bool follow(const FreeTicket& freed, StreamId asker) override;
  bool wait(const FreeTicket& freed, std::uint64_t until) override;

  // Tracks the context from now on, even before any call names it.
  void context_began(CUcontext context) { table_.everything_of(context); }

  // Waits until the device has completed everything that the context has been given. Polls, so a
  // kernel that waits for the calling thread does not block it forever. Returns false if the work
  // has not completed by `until`, or if a live capture rules out queries. The caller keeps the
  // program from submitting.
  bool wait_for_all(CUcontext context, std::uint64_t until);
  bool wait_for_everything(std::uint64_t until);  // of all contexts
  // Whether the device has completed all of it by now, and the non-blocking streams of the device's
  // other contexts. Waits for nothing.
  bool is_all_done(CUcontext context);
  // Queries the progress of streams with unfinished frees. Waits for nothing.
  void ask_about_frees(int device);

  // Whether work of streams that have ended may still be running. True if that is unknown.
  [[gnu::cold]] bool ended_streams_run(CUcontext context);

  // Waits for all frees so far on the device's streams, and for other streams' frees of the
  // device's memory. Returns true if any that finished was not known to be done before.
  bool wait_for_frees(int device, std::uint64_t until);

  // Marks the stream's pending frees. Call before the stream is captured, after which it takes no
  // marks.
  void mark_pending(StreamName name);
  // Notes whether the stream has work left. Call before the stream may join a capture: if it is
  // destroyed amid the capture, nothing shows later when that work is done.
  void note_work_before_capture(StreamName name);
  // Call before the driver destroys the stream, since a new stream may reuse its handle
  // immediately.
  void stream_ends(CUstream handle);
  // Call context_ends() before the driver destroys a context, and context_stays() afterwards if it
  // was not destroyed: the call failed, or did not release the last reference to a primary context.
  void context_ends(CUcontext context) { table_.context_ends(context); }
  void context_stays(CUcontext context) { table_.context_stays(context); }
  void context_ended(CUcontext context) { table_.context_ended(context); }

  // The frees that will be done after a wait that the program is about to make. Call before the
  // wait.
  Horizon horizon_of(StreamName name);
  Horizon horizon_of(CUcontext context);

  // A point in the work of streams. Read it before the driver call: a free by another thread during
  // the call may come after the point that the driver records or waits for.
  using Place = EventPlaces::Place;
  Place place_on(StreamName name);

  EventPlaces& events() { return events_; }
  // The driver has recorded the event; `place` was read before the call.
  void event_recorded(EventPlaces::Recording& recording, StreamName name, Place place);
  // The driver has made the stream wait for the event; `recorded` was read before the call.
  void waited_for_by(StreamName name, CUevent event, const EventPlaces::Recorded& recorded);
  // A query or wait reported that the event completed; `recorded` was read before the call. Returns
  // false if that proved nothing about freed memory.
  bool is_reached(CUevent event, const EventPlaces::Recorded& recorded, StreamTable::Told told);

  // cuvmm submitted work for the program, on a stream of any kind.
  void work_was_submitted() { program_.legacy.anything_submitted(); }

  class PlacedOperations;

 private:
  friend class Operation;

  bool leaves_mark(StreamState& stream, std::uint64_t freed) const;
  bool has_other_side(const StreamState& stream, std::uint64_t& epoch);
  void learn_other_side(StreamState& stream, std::uint64_t epoch);
  CUresult record_operation(StreamState& stream, CUevent& event);
  CUresult record_event(StreamState& owner, CUstream handle, CUevent& event);
  Place other_side_of(const StreamState& stream);
  void learn(StreamState& later, const Place& earlier);

  CUevent take_event(StreamState& state);
  void give_back_event(StreamState& state, CUevent event);
  void add_mark(StreamState& state, Mark mark);
  FreeTicket add_free(StreamState& state, Mark mark);
  static bool push_mark(StreamState& state, Mark mark);
  [[gnu::cold]] void thin_out_marks(StreamState& state);
  void record_own_mark(StreamState& state);
  bool record_on(StreamState& state, CUstream handle, Mark& mark);
  static bool may_run(StreamState& stream);
  void mark_all(StreamState& all);
  [[gnu::cold]] std::optional<Mark> record_on_all(StreamState& all);
  [[gnu::cold]] void record_final_event(const StreamState& stream);
  [[gnu::cold]] static void end_behind_barrier(StreamState& state);
  [[gnu::cold]] void settle_an_ended_stream();
  enum class PollEffort : std::uint8_t { Sparing, Full };
  void poll(StreamState& state, PollEffort zeal);
  void retire(StreamState& state, Mark& mark);
  [[gnu::cold]] void ask_whether_idle(StreamState& state);
  static CUevent pin(StreamState& state, CUevent event);
  static void unpin(StreamState& state, CUevent event);
  bool is_idle(CUstream handle) const;
  bool is_seen_idle(const StreamState& state, CUstream handle, std::uint64_t until);

  bool is_capturing(CUstream handle) const;
  // Whether an event of the program's may stand for a record that no hook reported.
  bool may_be_recorded_unseen() const { return !program_.sees_everything(); }
  Place known_of(StreamState& state);
  void prune_known(StreamState& state);
  Place place_of(StreamState& state);

  const Driver& driver_;
  const Program program_;
  StreamTable table_;
  std::atomic<bool> is_short_{false};
  std::atomic<std::uint64_t> freeing_streams_{0};  // streams that have ever freed
  EventPlaces events_;                             // never take its locks while holding the table's
};

// cuvmm's operations on a stream so far. They may still wait for work across the legacy barrier,
// which the driver ignores when the program queries or synchronizes the stream.
class StreamClock::PlacedOperations {
 public:
  PlacedOperations(StreamClock& clock, StreamName name);
  ~PlacedOperations();
  PlacedOperations(const PlacedOperations&) = delete;
  PlacedOperations& operator=(const PlacedOperations&) = delete;

  // Call after the driver reports the stream as done.
  bool are_done() const;
  CUresult wait() const;

 private:
  StreamClock& clock_;
  StreamState* const stream_;
  CUevent event_ = nullptr;
};

// One stream-ordered allocation or free that cuvmm serves. Construct it before the memory changes
// hands. Like the driver's own, it is an operation of its stream: it comes after all work that a
// native operation would come after, and a synchronization of the stream covers it.
class StreamClock::Operation {
 public:
  enum class Kind : std::uint8_t { Allocation, Free };
  // `freed`: how many bytes a free gives back.
  Operation(StreamClock& clock, StreamState& stream, Kind kind, std::uint64_t freed = 0);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // For a free: the driver's error if the stream cannot take it. On error, change nothing.
  CUresult answer() const { return answer_; }
  // Call once, when the memory is freed. Returns the free's ticket.
  FreeTicket freed();
  // For an allocation: call if other streams' work still uses the granted memory, and so must run
  // before this stream's. Returns the driver's error if the stream cannot take the allocation.
  CUresult granted_behind_others();

 private:
  CUresult record_barrier();

  StreamClock& clock_;
  StreamState& stream_;
  std::uint64_t epoch_ = 0;
  // The stream lacks a barrier event, which a free needs, as does an allocation of memory still
  // used by others.
  bool is_ahead_of_barrier_ = false;
  CUresult answer_ = CUDA_SUCCESS;
  CUevent event_ = nullptr;   // recorded for this operation
  std::uint64_t before_ = 0;  // the stream's last free before the event
  bool is_barrier_ = false;
};

}  // namespace cuvmm
