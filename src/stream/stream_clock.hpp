// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "stream/captures.hpp"
#include "stream/event_places.hpp"
#include "stream/gate.hpp"
#include "stream/legacy_barrier.hpp"
#include "stream/stream_order.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// How far streams had come at one moment. They may end before it is said that this is done.
class Horizon {
 public:
  explicit Horizon(const StreamTable& table) : table_(table) {}

  bool is_empty() const { return places_.empty(); }
  void add(const StreamState& state) {
    if (state.has_unwaited()) add({state.id, state.tick.load()});
  }
  void add(const FreeTicket& place) { places_.push_back(place); }
  // All of it is done.
  void reached() const { table_.note_done(places_, StreamTable::Told::ByTheDevice); }
  // And the program has waited for it.
  void waited_for() const { table_.note_done(places_, StreamTable::Told::ByAWait); }

 private:
  const StreamTable& table_;
  std::vector<FreeTicket> places_;
};

// Knows how the work of streams is ordered, and how far the device has come, from what the program
// does with its streams and events, and from events of its own. docs/stream_order.md has the rules.
//
// Events of ours are recorded by a thread that is giving that very stream an operation, or ending
// it, and nowhere else: recording waits where the stream's launch queue is full, and on the legacy
// stream it holds every blocking stream up. A caller that needs to know more about a stream asks
// for a mark at its next operation.
//
// The calls about the program's own doings come from the hooks, after the driver's answer unless
// they say otherwise.
class StreamClock final : public StreamOrder {
 public:
  // What is known of the program's calls. All of it outlives the clock.
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

  // Freed by a call that all work of the context comes before, and that the program may expect to
  // wait for it.
  FreeTicket ticket_of_all(CUcontext context);
  // Freed by a call that is in no stream's order, so the program is done with it. What came before
  // its allocation on that stream may not be.
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

  // It is known from here on, whatever is called in it.
  void context_began(CUcontext context) { table_.everything_of(context); }

  // Until the device has done everything that the context has been given. Polls, so that a kernel
  // that waits for this very thread does not hold it for ever. False where it was not done by then,
  // or cannot be asked, since a capture is live. The caller keeps the program from submitting.
  bool wait_for_all(CUcontext context, std::uint64_t until);
  bool wait_for_everything(std::uint64_t until);  // of all contexts
  // The same at this moment.
  bool is_all_done(CUcontext context);
  // Asks how far the streams are that have freed what is not known to be done. Waits for nothing.
  void ask_about_frees(int device);

  // Work of streams that are no longer there may run still. True where that cannot be told.
  bool ended_streams_run(CUcontext context);

  // Until everything is done that was freed so far by streams of the device, or by others of the
  // device's memory. True where some of it was not known to be before.
  bool wait_for_frees(int device, std::uint64_t until);

  // Before the stream's work stops being ours to mark, since it is about to be captured.
  void mark_pending(StreamName name);
  // Before the driver ends it, since the next stream may have its handle at once.
  void stream_ends(CUstream handle);
  // Before the driver ends a context, and afterwards where it has not: it was refused, or was not
  // the last release of a primary context.
  void context_ends(CUcontext context) { table_.context_ends(context, true); }
  void context_stays(CUcontext context) { table_.context_ends(context, false); }
  void context_ended(CUcontext context) { table_.context_ended(context); }

  // Before a wait of the program's: what will have been done after it.
  Horizon horizon_of(StreamName name);
  Horizon horizon_of(CUcontext context);

  // A place in the work of streams. Read before the driver is asked, since other threads go on:
  // what they free meanwhile may lie behind what the driver then records or waits for.
  using Place = EventPlaces::Place;
  Place place_on(StreamName name);

  EventPlaces& events() { return events_; }
  // The driver has recorded it; `place` is from before it was asked.
  void event_recorded(EventPlaces::Recording& recording, StreamName name, Place place);
  // The driver has made the stream wait for it; `recorded` is from before it was asked.
  void waited_for_by(StreamName name, CUevent event, const EventPlaces::Recorded& recorded);
  // A query or wait said so of the event; `recorded` is from before it was asked. False where that
  // told nothing of what was freed.
  bool is_reached(CUevent event, const EventPlaces::Recorded& recorded, StreamTable::Told told);

  // By us, for the program, on a stream of whatever kind.
  void work_was_submitted() { program_.legacy.anything_submitted(); }

  class PlacedOperations;

 private:
  friend class Operation;

  bool leaves_mark(const StreamState& stream) const {
    return stream.leaves_marks() || (is_short_.load(std::memory_order_relaxed) &&
                                     freeing_streams_.load(std::memory_order_relaxed) > 1);
  }
  bool has_other_side(const StreamState& stream, std::uint64_t& epoch);
  void learn_other_side(StreamState& stream, std::uint64_t epoch);
  CUresult record_operation(StreamState& stream, CUevent& event);
  CUresult record_event(StreamState& owner, CUstream handle, CUevent& event);
  Place other_side_of(const StreamState& stream);
  void learn(StreamState& later, const Place& earlier);

  CUevent take_event(StreamState& state);
  void give_back_event(StreamState& state, CUevent event);
  void add_mark(StreamState& state, Mark mark);
  void record_own_mark(StreamState& state);
  bool record_on(StreamState& state, CUstream handle, Mark& mark);
  void mark_all(StreamState& all);
  void leave_behind(const StreamState& stream);
  enum class Zeal : std::uint8_t { Sparing, Full };
  void poll(StreamState& state, Zeal zeal);
  void retire(StreamState& state, Mark& mark);
  void ask_whether_idle(StreamState& state);
  static CUevent pin(StreamState& state, CUevent event);
  static void unpin(StreamState& state, CUevent event);
  bool is_idle(CUstream handle) const;

  bool is_capturing(CUstream handle) const;
  Place known_of(StreamState& state);
  Place place_of(StreamState& state);

  const Driver& driver_;
  const Program program_;
  StreamTable table_;
  std::atomic<bool> is_short_{false};
  std::atomic<std::uint64_t> freeing_streams_{0};  // that ever freed
  EventPlaces events_;  // its locks are never held while the table's own is
};

// The operations of ours that a stream has been given by now. They may be behind the legacy stream,
// where the driver does not look when it is asked about their stream.
class StreamClock::PlacedOperations {
 public:
  PlacedOperations(StreamClock& clock, StreamName name);
  ~PlacedOperations();
  PlacedOperations(const PlacedOperations&) = delete;
  PlacedOperations& operator=(const PlacedOperations&) = delete;

  // After the driver has said that the stream is done.
  bool are_done() const;
  CUresult wait() const;

 private:
  StreamClock& clock_;
  StreamState* const stream_;
  CUevent event_ = nullptr;
};

// One stream-ordered allocation or free that we serve, from before the memory changes hands. It is
// an operation of its stream, as the driver's own would be: what its stream's synchronization waits
// for natively, it waits for here.
class StreamClock::Operation {
 public:
  enum class Kind : std::uint8_t { Allocation, Free };
  Operation(StreamClock& clock, StreamState& stream, Kind kind);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Of a free. Else the driver's reason why the stream does not take it: nothing may be done then.
  CUresult answer() const { return answer_; }
  // The memory is freed now. Once.
  FreeTicket freed();
  // Memory was found that other streams' work still uses, ahead of this stream. Else the driver's
  // reason why the stream cannot take the allocation.
  CUresult granted_behind_others();

 private:
  CUresult stand_as_barrier();

  StreamClock& clock_;
  StreamState& stream_;
  std::uint64_t epoch_ = 0;
  bool is_ahead_of_barrier_ = false;  // one is missing, for a free or for memory behind others
  CUresult answer_ = CUDA_SUCCESS;
  CUevent event_ = nullptr;   // that was recorded for it
  std::uint64_t before_ = 0;  // the last free on the stream before the event
  bool is_barrier_ = false;
};

}  // namespace cuvmm
