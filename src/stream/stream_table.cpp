// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_table.hpp"

#include <algorithm>

#include <mutex>
#include <shared_mutex>

#include "driver/current_context.hpp"
#include "stream/per_thread_use.hpp"
#include "stream/thread_ends.hpp"

namespace cuvmm {
namespace {

constexpr CUstream everything = nullptr;

std::vector<StreamState*> streams_that(const auto& states, const auto& qualify) {
  std::vector<StreamState*> streams;
  for (const auto& [name, state] : states) {
    if (qualify(*state)) streams.push_back(state);
  }
  return streams;
}

}  // namespace

// The stream that this thread named last. Plain data, so it needs no construction or destruction.
struct StreamTable::Recent {
  const StreamTable* table;
  std::uint64_t change;
  Key key;
  StreamState* state;
};

[[gnu::tls_model("initial-exec")]] thread_local StreamTable::Recent StreamTable::recent_{};
[[gnu::tls_model("initial-exec")]] thread_local StreamTable::Gathered StreamTable::gathered_{};
StreamTable::Changes StreamTable::changes_{1};

StreamTable::StreamTable(const Driver& driver, LegacyBarrier* legacy)
    : driver_(driver), legacy_(legacy) {
  note_change();
  ThreadEnds::add(*this);
}

StreamTable::~StreamTable() {
  ThreadEnds::remove(*this);
  note_change();
}

std::size_t StreamTable::KeyHash::operator()(const Key& key) const noexcept {
  const auto mix = [](std::uint64_t word) { return word * 0x9E3779B97F4A7C15u; };
  return mix(reinterpret_cast<std::uint64_t>(key.context)) ^
         (mix(reinterpret_cast<std::uint64_t>(key.handle)) >> 7) ^ mix(key.thread);
}

StreamState* StreamTable::find(StreamName name) {
  Key key{};
  CUcontext current = nullptr;
  if (name.is_default()) {
    current = current_context(driver_);
    if (current == nullptr) return nullptr;
    key.context = current;
    key.handle = name.explicit_handle();
    key.thread = name.is_legacy() ? 0 : PerThreadUse::this_thread();
  } else {
    key.handle = name.handle;
  }
  const std::uint64_t change = changes_.load(std::memory_order_acquire);
  Recent& recent = recent_;
  if (recent.table == this && recent.change == change && recent.key == key) return recent.state;

  StreamState* state = nullptr;
  {
    const Reading reading{lock_};
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) state = found->second;
  }
  if (state == nullptr) state = learn(key, name, current);
  if (state != nullptr) recent = {this, change, key, state};
  return state;
}

void StreamTable::stream_began(CUstream handle) {
  {
    const Writing writing{lock_};
    const auto found = by_key_.find(Key{nullptr, handle, 0});
    if (found != by_key_.end()) {
      end(*found->second);
      by_key_.erase(found);
      note_change();
    }
  }
  find({.handle = handle});
}

StreamState* StreamTable::known(StreamName name) const {
  const Reading reading{lock_};
  const auto found = by_key_.find(Key{nullptr, name.handle, 0});
  return found == by_key_.end() ? nullptr : found->second;
}

StreamState* StreamTable::learn(const Key& key, StreamName name, CUcontext current) {
  if (name.is_default()) {
    const StreamKind kind = name.is_legacy() ? StreamKind::Legacy : StreamKind::PerThread;
    if (kind == StreamKind::PerThread) ThreadEnds::watch_this_thread();
    return &add(key, current, key.handle, kind);
  }
  // Querying the flags of a capturing stream breaks its capture.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver_.cuStreamIsCapturing(name.handle, &status) != CUDA_SUCCESS) return nullptr;
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return nullptr;
  CUcontext context = nullptr;
  unsigned flags = 0;
  if (driver_.cuStreamGetCtx_v9020(name.handle, &context) != CUDA_SUCCESS) return nullptr;
  if (driver_.cuStreamGetFlags(name.handle, &flags) != CUDA_SUCCESS) return nullptr;
  const bool alone = (flags & CU_STREAM_NON_BLOCKING) != 0;
  return &add(key, context, key.handle, alone ? StreamKind::NonBlocking : StreamKind::Blocking);
}

StreamState& StreamTable::everything_of(CUcontext context) {
  const Key key{context, everything, 0};
  {
    const Reading reading{lock_};
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) return *found->second;
  }
  return add(key, context, everything, StreamKind::Everything);
}

std::vector<StreamState*> StreamTable::everything_of_all() {
  std::vector<StreamState*> known;
  std::vector<CUcontext> others;  // from before cuvmm started
  {
    const Reading reading{lock_};
    for (const auto& [key, state] : by_key_) {
      if (state->kind == StreamKind::Everything) {
        known.push_back(state);
      } else if (!by_key_.contains(Key{state->context, everything, 0})) {
        others.push_back(state->context);
      }
    }
  }
  for (const CUcontext context : others) {
    StreamState* const state = &everything_of(context);
    if (std::find(known.begin(), known.end(), state) == known.end()) known.push_back(state);
  }
  return known;
}

StreamState& StreamTable::add(const Key& key, CUcontext context, CUstream handle, StreamKind kind) {
  const int device = device_of(driver_, context);
  const bool is_blocking = kind == StreamKind::Blocking || kind == StreamKind::PerThread;
  if (legacy_ != nullptr && is_blocking) legacy_->blocking_stream_exists();
  const Writing writing{lock_};
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return *found->second;  // another thread added it first
  StreamState& state = unused_record();
  state.id = ++last_id_;
  state.context = context;
  state.handle = handle;
  state.kind = kind;
  state.device = device;
  state.thread = key.thread;
  state.context_ends.store(is_ending(context));
  by_key_.emplace(key, &state);
  by_id_.emplace(state.id, &state);
  note_change();
  return state;
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

CUevent StreamTable::spare_event_of(CUcontext context) {
  const Reading reading{lock_};
  const auto found = by_key_.find(Key{context, everything, 0});
  if (found == by_key_.end()) return nullptr;
  StreamState& all = *found->second;
  const Holding holding{all.lock};
  if (all.spare_events.empty()) return nullptr;
  const CUevent event = all.spare_events.back();
  all.spare_events.pop_back();
  return event;
}

StreamState* StreamTable::by_id(StreamId id) const {
  const Reading reading{lock_};
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<CUcontext> StreamTable::contexts() const {
  std::vector<CUcontext> found;
  const Reading reading{lock_};
  for (const auto& [key, state] : by_key_) {
    if (std::find(found.begin(), found.end(), state->context) == found.end()) {
      found.push_back(state->context);
    }
  }
  return found;
}

std::vector<StreamState*> StreamTable::of_context(CUcontext context) const {
  const Reading reading{lock_};
  return streams_that(by_key_, [&](const StreamState& state) { return state.context == context; });
}

std::vector<StreamState*> StreamTable::of_device(int device) const {
  const Reading reading{lock_};
  return streams_that(by_key_, [&](const StreamState& state) { return state.device == device; });
}

// If a stream was added or ended during the gathering, the result is stored under the old number
// and so not used again.
const StreamTable::Gathered& StreamTable::gathered_of(CUcontext context) const {
  const std::uint64_t change = changes_.load(std::memory_order_acquire);
  Gathered& here = gathered_;
  if (here.table == this && here.change == change && here.context == context) return here;
  const std::vector<StreamState*> all = of_context(context);
  here = {this, change, context, all.size(), all.size() <= Gathered::most, {}};
  if (here.fit) std::copy(all.begin(), all.end(), here.streams);
  return here;
}

std::vector<StreamState*> StreamTable::with_unfinished(int device) const {
  const Reading reading{lock_};
  return streams_that(by_id_, [&](const StreamState& state) {
    return state.has_freed_memory_of(device) && state.has_unfinished();
  });
}

std::vector<FreeTicket> StreamTable::ended_of(CUcontext context) const {
  std::vector<FreeTicket> places;
  if (!some_ended_unfinished_.load(std::memory_order_acquire)) return places;
  const Reading reading{lock_};
  bool some = false;
  for (const StreamState* state : ended_) {
    if (!state->has_unfinished()) continue;
    some = true;
    if (state->context == context) places.push_back({state->id, state->tick.load()});
  }
  if (!some) some_ended_unfinished_.store(false, std::memory_order_relaxed);
  return places;
}

void StreamTable::note_done(const std::vector<FreeTicket>& places, Told told) const {
  if (places.empty()) return;
  const Reading reading{lock_};  // no record is reused while this lock is held
  for (const FreeTicket& place : places) {
    const auto found = by_id_.find(place.stream);
    if (found == by_id_.end()) continue;
    found->second->advance(place.tick);
    if (told == Told::ByAWait) found->second->has_been_waited_for(place.tick);
  }
}

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

}  // namespace cuvmm
