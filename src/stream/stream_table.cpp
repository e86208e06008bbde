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

}  // namespace cuvmm
