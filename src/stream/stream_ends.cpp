// SPDX-License-Identifier: Apache-2.0
// The ends of streams, and what becomes of their records and events.
#include <algorithm>
#include <mutex>

#include "stream/stream_table.hpp"

namespace cuvmm {

// The record stays findable for threads that wait for its last frees.
void StreamTable::end(StreamState& state) {
  if (state.has_unfinished()) some_ended_unfinished_.store(true, std::memory_order_release);
  state.ended.store(true, std::memory_order_release);
  ended_.push_back(&state);
}

void StreamTable::stream_ended(CUstream handle) {
  const Writing ending{ends_};
  const Writing writing{lock_};
  const auto found = by_key_.find(Key{nullptr, handle, 0});
  if (found == by_key_.end()) return;
  end(*found->second);
  by_key_.erase(found);
  note_change();
}

// The streams need no final event: each free on a per-thread stream has left a mark, which shows
// the stream's progress.
void StreamTable::thread_ended(std::uint64_t thread) {
  const Writing ending{ends_};
  const Writing writing{lock_};
  for (auto place = by_key_.begin(); place != by_key_.end();) {
    if (place->first.thread != thread) {
      ++place;
      continue;
    }
    end(*place->second);
    place = by_key_.erase(place);
    note_change();
  }
}

bool StreamTable::is_ending(CUcontext context) const {
  return std::find(ending_contexts_.begin(), ending_contexts_.end(), context) !=
         ending_contexts_.end();
}

void StreamTable::forget_ending(CUcontext context) {
  const auto found = std::find(ending_contexts_.begin(), ending_contexts_.end(), context);
  if (found != ending_contexts_.end()) ending_contexts_.erase(found);
}

void StreamTable::context_ends(CUcontext context) {
  const Writing ending{ends_};
  const Writing writing{lock_};
  ending_contexts_.push_back(context);
  for (const auto& state : all_) {
    if (state->context == context) state->context_ends.store(true);
  }
}

void StreamTable::context_stays(CUcontext context) {
  const Writing ending{ends_};
  const Writing writing{lock_};
  forget_ending(context);
  if (is_ending(context)) return;
  for (const auto& state : all_) {
    if (state->context == context) state->context_ends.store(false);
  }
}

void StreamTable::context_ended(CUcontext context) {
  const Writing writing{lock_};
  forget_ending(context);
  for (auto place = by_key_.begin(); place != by_key_.end();) {
    StreamState& state = *place->second;
    if (state.context != context) {
      ++place;
      continue;
    }
    end(state);
    place = by_key_.erase(place);
  }
  for (const auto& state : all_) {
    if (state->context == context) forget_events_of(*state);
  }
  note_change();
}

void StreamTable::drop_events_of(StreamState& state) {
  const Holding holding{state.lock};
  for (const Mark& mark : state.marks) {
    for (CUevent event : mark.events) driver_.cuEventDestroy(event);
  }
  for (CUevent event : state.spare_events) driver_.cuEventDestroy(event);
  for (CUevent event : state.retired_events) driver_.cuEventDestroy(event);
  for (CUevent event : state.left_behind) driver_.cuEventDestroy(event);
  state.marks.clear();
  state.spare_events.clear();
  state.retired_events.clear();
  state.left_behind.clear();
}

// The events ended with their context, and their handles may have been reused. All frees on the
// streams that ended with it are done, including those that another thread is about to note.
void StreamTable::forget_events_of(StreamState& state) {
  const Holding holding{state.lock};
  state.marks.clear();
  state.has_marks.store(false);
  state.has_barrier.store(false);
  state.spare_events.clear();
  state.pinned_events.clear();
  state.retired_events.clear();
  state.left_behind.clear();
  if (state.ended.load()) state.advance(last_tick);
}

void StreamTable::drop_events() {
  const Writing writing{lock_};
  for (const auto& state : all_) drop_events_of(*state);
}

// Moves the events to the context's record, from which any of its streams may take them. They are
// not destroyed: cuEventDestroy would wait while another thread waits in cuMemFree, and this thread
// may be the one that lets that work proceed. Returns false if a thread is about to pass one of
// them to the driver, or if the context has no record.
bool StreamTable::transfer_events_to_context(StreamState& state) {
  std::vector<CUevent> events;
  const auto found = by_key_.find(Key{state.context, everything, 0});
  {
    const Holding holding{state.lock};
    if (!state.pinned_events.empty()) return false;
    for (const Mark& mark : state.marks) {
      events.insert(events.end(), mark.events.begin(), mark.events.end());
    }
    events.insert(events.end(), state.spare_events.begin(), state.spare_events.end());
    events.insert(events.end(), state.retired_events.begin(), state.retired_events.end());
    if (!events.empty() && found == by_key_.end()) return false;
    state.marks.clear();
    state.spare_events.clear();
    state.retired_events.clear();
  }
  if (events.empty()) return true;
  StreamState& all = *found->second;
  const Holding holding{all.lock};
  all.spare_events.insert(all.spare_events.end(), events.begin(), events.end());
  return true;
}

// How many of the last streams that ended keep their records, since other threads may still work on
// those.
constexpr std::size_t left_alone = 256;

StreamState* StreamTable::last_left_alone() const {
  const Reading reading{lock_};
  return ended_.size() < left_alone ? nullptr : ended_[ended_.size() - left_alone];
}

// Whether other streams' frees that come before this stream's work may be unfinished: memory that
// was allocated on it may still be in use there. Those streams' next frees then leave marks.
bool StreamTable::knows_unfinished(StreamState& state) const {
  if (state.is_done(last_tick)) return false;
  const Holding holding{state.lock};
  bool some = false;
  for (const FreeTicket& freed : state.known) {
    const auto found = by_id_.find(freed.stream);
    if (found == by_id_.end() || found->second->is_done(freed.tick)) continue;
    found->second->request_marks();
    some = true;
  }
  return some;
}

// Reuses the record of a stream that ended long ago, if nothing depends on it; otherwise adds one.
// Frees of a stream that ended may count as unfinished for as long as the program runs.
StreamState& StreamTable::unused_record() {
  constexpr int most_looks = 8;
  for (int looks = 0; looks < most_looks && ended_.size() > left_alone; ++looks) {
    StreamState& state = *ended_.front();
    ended_.pop_front();
    if (state.has_unfinished() || knows_unfinished(state) || !transfer_events_to_context(state)) {
      ended_.push_back(&state);
      continue;
    }
    by_id_.erase(state.id);
    state.tick.store(0);
    state.done.store(0);
    state.waited_for.store(0);
    state.ended.store(false);
    state.learnt_epoch.store(0);
    state.barrier_epoch.store(0);
    state.has_barrier.store(false);
    state.has_marks.store(false);
    state.was_idle_before_capture.store(false);
    state.marks_wanted.store(0);
    state.freed_since_mark.store(0);
    state.unmarked_end.store(0);
    state.other_devices.store(0);
    const Holding holding{state.lock};
    state.known.clear();
    state.known_when_pruned = 0;
    state.fruitless_polls = 0;
    state.knows_others.store(false, std::memory_order_release);
    return state;
  }
  all_.push_back(std::make_unique<StreamState>());
  return *all_.back();
}

}  // namespace cuvmm
