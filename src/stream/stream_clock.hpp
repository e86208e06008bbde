// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream/captures.hpp"
#include "stream/event_places.hpp"
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
// does with its streams and events, and from events of its own. Those are recorded only when
// somebody asks: a free costs a count.
//
// The calls about the program's own doings come from the hooks, after the driver's answer unless
// they say otherwise.
class StreamClock final : public StreamOrder {
 public:
  StreamClock(const Driver& driver, const Captures& captures)
      : driver_(driver), captures_(captures), table_(driver) {}

  ~StreamClock() override { table_.drop_events(); }
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  StreamTable& table() { return table_; }

  // Freed now on that stream; or by a call that all work of the context comes before.
  static FreeTicket ticket(StreamState& stream) { return stream.ticket(); }
  FreeTicket ticket_of_all(CUcontext context) { return table_.everything_of(context).ticket(); }

  bool is_before(const FreeTicket& freed, StreamId asker) const override;
  bool is_done(const FreeTicket& freed) const override;
  void look(StreamId stream) override;
  bool follow(StreamId stream, StreamId asker) override;
  bool wait(const FreeTicket& freed, std::uint64_t until) override;

  // It is known from here on, whatever is called in it.
  void context_began(CUcontext context) { table_.everything_of(context); }

  // Until the device has done everything that the context has been given. Polls, so that a kernel
  // that waits for this very thread does not hold it for ever. False where it was not done by then.
  bool wait_for_all(CUcontext context, std::uint64_t until);
  bool wait_for_everything(std::uint64_t until);  // of all contexts

  // Work of streams that are no longer there may run still. True where that cannot be told.
  bool ended_streams_run(CUcontext context);

  // Until everything is done that was freed on the device so far. True where some of it was not
  // known to be before.
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
  Place place_of(CUevent event) const { return events_.of(event); }

  // After the driver's answer, with the place from before it.
  void event_recorded(CUevent event, StreamName name, Place place) {
    if (place.empty() && !events_.may_know(event)) return;
    note_record(event, name, std::move(place));
  }
  // Before a launch that records it at a moment which says nothing of the work ahead of it.
  void event_recorded_by_launch(CUevent event) { events_.forget_record(event); }
  void waited_for_by(StreamName name, const Place& place);
  // A query or wait said so of the event. False where that told nothing of what was freed.
  bool is_reached(CUevent event, const Place& place);
  void event_ended(CUevent event) { events_.ended(event); }
  // By a graph's node or by another process, now or whenever they like: what such an event says is
  // not of a record that we saw.
  void event_is_recorded_unseen(CUevent event) { events_.recorded_unseen(event); }

 private:
  void mark(StreamState& state);
  void leave_behind(const StreamState& stream);
  bool record_mark(StreamState& state, const std::vector<StreamState*>& streams, Mark& mark);
  bool record_on(StreamState& state, CUstream handle, Mark& mark);
  void poll(StreamState& state);
  void let_go(StreamState& state, Mark& mark);
  void note_record(CUevent event, StreamName name, Place place);
  bool is_capturing(CUstream handle) const;
  Place known_of(StreamState& state);
  Place place_of(StreamState& state);

  const Driver& driver_;
  const Captures& captures_;
  StreamTable table_;
  EventPlaces events_;  // its locks are never held while the table's own is
};

}  // namespace cuvmm
