// SPDX-License-Identifier: Apache-2.0
// Tracks this process's work in flight while it shares a device's time, and how long that work
// takes.
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "driver/current_context.hpp"
#include "engine/device_work.hpp"
#include "engine/time_lease.hpp"

namespace cuvmm {
namespace {

// A mark costs the device some microseconds between two kernels, so short kernels share one.
constexpr std::uint64_t mark_every_ns = 100'000;
constexpr std::uint32_t mark_every_operations = 64;

// Each half of a small window gets a mark, so that the end of the first half is seen while the
// second still keeps the device busy.
std::uint64_t mark_every(std::uint64_t window_ns) {
  return window_ns == 0 ? mark_every_ns : std::min(mark_every_ns, window_ns / 2);
}

// In the current context. A query of the legacy stream would break the capture; this one does not.
bool blocking_stream_is_captured(const Driver& driver) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(CU_STREAM_LEGACY, &status) != CUDA_SUCCESS;
}

}  // namespace

void TimeLease::submitted(Call call, StreamName stream, std::uint64_t kind) {
  // A call that waits for its own completion leaves nothing in flight.
  const bool has_ended = has(info(call).effect, Effect::Waits);
  if (stays_out_.load() || dependencies_.captures.any()) return;
  OfDevice* const device = device_of_this_thread();
  const CUcontext context = current_context(dependencies_.driver);
  if (device == nullptr || context == nullptr) return;
  Stream now_marked;
  {
    const Holding holding{lock_};
    device->admitted_at = 0;
    if (has_ended) return;
    Stream& known = find_or_add(*device, context, stream);
    note_holds_across_barrier(*device, known);
    const std::uint64_t now = now_ns();
    const bool is_known = device->estimates.knows(kind);
    // Unknown work may be long, so it fills the window.
    const std::uint64_t window_ns = std::uint64_t{device->words->window.load()} * 1'000;
    const std::uint64_t estimate =
        is_known ? device->estimates.of(kind) : std::max(device->estimates.of(kind), window_ns);
    if (known.operations++ == 0) {
      known.began_at = now;
      known.kind = kind;
    }
    if (known.kind != kind) known.kind = 0;
    known.estimate_ns += estimate;
    device->in_flight_ns += estimate;
    device->ends_at = std::max(device->ends_at, now) + estimate;
    device->words->in_flight_until_ns.store(device->ends_at, std::memory_order_relaxed);
    // Without a mark, work that is held would count as ended before it has begun.
    const bool is_due = !is_known || known.may_be_held ||
                        known.estimate_ns >= mark_every(window_ns) ||
                        known.operations >= mark_every_operations;
    if (!is_due || device->flight_count == most_flights) return;
    now_marked = known;
    known.operations = 0;
    known.estimate_ns = 0;
    known.may_be_held = false;
    ++device->marks_being_made;
  }
  const CUevent event = mark(now_marked);
  const Holding holding{lock_};
  --device->marks_being_made;
  const bool asks_legacy_stream = event == nullptr && stream.is_legacy();
  const bool has_place = device->flight_count < most_flights;
  if (has_place && (event != nullptr || asks_legacy_stream)) {
    device->flights[device->flight_count++] = {now_marked, event};
  } else {
    give_back(now_marked.context, event);
    device->in_flight_ns -= std::min(device->in_flight_ns, now_marked.estimate_ns);
  }
}

void TimeLease::may_hold(StreamName stream) {
  if (stays_out_.load() || dependencies_.captures.any()) return;
  OfDevice* const device = device_of_this_thread();
  const CUcontext context = current_context(dependencies_.driver);
  if (device == nullptr || context == nullptr) return;
  const Holding holding{lock_};
  find_or_add(*device, context, stream).may_be_held = true;
  ++(stream.is_legacy() ? device->holds_of_legacy_stream : device->holds_of_other_streams);
}

// The legacy stream waits for the work of blocking streams, and they wait for its work, so a hold
// on one side may hold the other. Ignores contexts and stream kinds: other contexts' streams and
// non-blocking ones only get a mark that they do not need.
void TimeLease::note_holds_across_barrier(const OfDevice& device, Stream& stream) const {
  if (!dependencies_.legacy.has_blocking_streams()) return;
  const std::uint32_t holds = stream.handle == CU_STREAM_LEGACY ? device.holds_of_other_streams
                                                                : device.holds_of_legacy_stream;
  if (std::exchange(stream.holds_seen, holds) != holds) stream.may_be_held = true;
}

// Returns nullptr if no mark is possible. On a legacy stream that orders others, an event would be
// a barrier that the program did not ask for.
CUevent TimeLease::mark(const Stream& stream) {
  const Captures::CaptureBlock held_off{dependencies_.captures};
  if (!held_off.none_is_seen()) return nullptr;
  const LegacyBarrier::Alone alone{dependencies_.legacy};
  if (stream.handle == CU_STREAM_LEGACY && !alone.is_alone()) return nullptr;
  const InContext in_context{dependencies_.driver, stream.context};
  if (!in_context.ok()) return nullptr;
  const CUevent event = take_event(stream.context);
  if (event == nullptr) return nullptr;
  if (dependencies_.driver.cuEventRecord(event, stream.handle) == CUDA_SUCCESS) return event;
  const Holding holding{lock_};
  give_back(stream.context, event);
  return nullptr;
}

CUevent TimeLease::take_event(CUcontext context) {
  {
    const Holding holding{lock_};
    for (Spare& spare : spare_) {
      if (spare.context != context) continue;
      const CUevent event = spare.event;
      spare = spare_.back();
      spare_.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  return dependencies_.driver.cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event
                                                                                      : nullptr;
}

// The caller holds lock_.
void TimeLease::give_back(CUcontext context, CUevent event) {
  if (event != nullptr) spare_.push_back({context, event});
}

TimeLease::Stream TimeLease::named(CUcontext context, StreamName stream) {
  return {.context = context,
          .handle = stream.explicit_handle(),
          .thread = stream.is_per_thread() ? ::pthread_self() : 0};
}

// The caller holds lock_. If the table is full, replaces another stream.
TimeLease::Stream& TimeLease::find_or_add(OfDevice& device, CUcontext current, StreamName name) {
  Stream stream = named(current, name);
  if (Stream* const known = find(device, stream)) return *known;
  // A program may use streams of a context that is not current.
  CUcontext owner = nullptr;
  const bool has_owner = !name.is_default() && dependencies_.driver.cuStreamGetCtx_v9020(
                                                   name.handle, &owner) == CUDA_SUCCESS;
  if (has_owner && owner != nullptr && owner != current) {
    stream.context = owner;
    if (Stream* const known = find(device, stream)) return *known;
  }
  const bool is_full = device.stream_count == most_streams;
  Stream& place =
      device.streams[is_full ? device.next_to_replace++ % most_streams : device.stream_count++];
  if (is_full) {
    device.others_may_be_held |= place.may_be_held;
    device.in_flight_ns -= std::min(device.in_flight_ns, place.estimate_ns);
    give_back(place.context, place.last_mark);
  }
  place = stream;
  place.may_be_held = device.others_may_be_held;
  return place;
}

TimeLease::Stream* TimeLease::find(OfDevice& device, const Stream& stream) {
  for (std::size_t i = 0; i < device.stream_count; ++i) {
    if (device.streams[i].is(stream)) return &device.streams[i];
  }
  return nullptr;
}

bool TimeLease::is_done(const Flight& flight) {
  if (is_ending(flight.of.context)) return false;
  if (flight.mark != nullptr) {
    return dependencies_.driver.cuEventQuery(flight.mark) != CUDA_ERROR_NOT_READY;
  }
  const Captures::CaptureBlock held_off{dependencies_.captures};
  if (!held_off.none_is_seen()) return false;
  const InContext in_context{dependencies_.driver, flight.of.context};
  if (!in_context.ok()) return true;
  if (!held_off.none_lives() && blocking_stream_is_captured(dependencies_.driver)) return false;
  return dependencies_.driver.cuStreamQuery(CU_STREAM_LEGACY) != CUDA_ERROR_NOT_READY;
}

// The caller holds lock_. The flights of one stream complete in order.
void TimeLease::look_at_flights(OfDevice& device, std::uint64_t now) {
  if (device.flight_count == 0) {
    // Work that is just getting its mark is in flight, too.
    if (now >= device.ends_at && device.marks_being_made == 0) device.in_flight_ns = 0;
    return;
  }
  const RelaxedCapture relaxed{dependencies_.driver};
  std::size_t left = 0;
  for (std::size_t i = 0; i < device.flight_count; ++i) {
    const Flight flight = device.flights[i];
    bool is_behind = false;
    for (std::size_t k = 0; k < left; ++k) is_behind |= device.flights[k].of.is(flight.of);
    if (is_behind || !is_done(flight)) {
      device.flights[left++] = flight;
    } else {
      has_ended(device, flight, now);
    }
  }
  device.flight_count = left;
  if (left == 0) device.ends_at = std::min(device.ends_at, now + mark_every_ns);
}

// Estimates how long the work took. Work queued behind other work of its stream began when that
// work ended, so the time between their marks is exact. Otherwise, or if the stream may have been
// held, the result is an upper bound, which includes the driver's time or the hold.
void TimeLease::has_ended(OfDevice& device, const Flight& flight, std::uint64_t now) {
  const Stream& of = flight.of;
  device.progress_at = now;
  device.next_to_let_through = 1;
  device.in_flight_ns -= std::min(device.in_flight_ns, of.estimate_ns);
  std::uint64_t took = now - std::min(now, of.began_at);
  Stream* const stream = find(device, of);
  if (stream == nullptr) return give_back(of.context, flight.mark);
  const bool follows =
      stream->last_mark != nullptr && flight.mark != nullptr && of.began_at < stream->last_mark_at;
  float milliseconds = 0;
  if (follows && dependencies_.driver.cuEventElapsedTime_v2000(&milliseconds, stream->last_mark,
                                                               flight.mark) == CUDA_SUCCESS) {
    took = std::min(took, static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6));
  }
  const std::uint64_t each = took / std::max(1U, of.operations);
  const bool is_exact = follows && !of.may_be_held;
  if (is_exact || !device.estimates.knows(of.kind) || each < device.estimates.of(of.kind)) {
    device.estimates.learn(of.kind, each);
  }
  if (flight.mark == nullptr) return;
  give_back(of.context, stream->last_mark);
  stream->last_mark = flight.mark;
  stream->last_mark_at = now;
}

bool TimeLease::is_ending(CUcontext context) const {
  return std::find(ending_.begin(), ending_.end(), context) != ending_.end();
}

// The caller holds lock_.
void TimeLease::forget(CUcontext context) {
  const auto remove = [](auto& all, std::size_t& count, auto in_context) {
    const auto end = std::remove_if(all.begin(), all.begin() + count, in_context);
    count = static_cast<std::size_t>(end - all.begin());
  };
  for (const auto& place : devices_) {
    OfDevice* const device = place.load();
    if (device == nullptr) continue;
    const auto has_ended_with_it = [&](const Stream& stream) {
      if (stream.context != context) return false;
      device->in_flight_ns -= std::min(device->in_flight_ns, stream.estimate_ns);
      return true;
    };
    remove(device->flights, device->flight_count,
           [&](const Flight& flight) { return has_ended_with_it(flight.of); });
    remove(device->streams, device->stream_count, has_ended_with_it);
  }
  std::erase_if(spare_, [&](const Spare& spare) { return spare.context == context; });
}

TimeLease::Ending::Ending(TimeLease& lease, CUcontext context) : lease_(lease), context_(context) {
  if (context_ == nullptr) return;
  const Holding holding{lease_.lock_};
  lease_.ending_.push_back(context_);
}

TimeLease::Ending::~Ending() {
  if (context_ == nullptr) return;
  const Holding holding{lease_.lock_};
  auto& ending = lease_.ending_;
  ending.erase(std::find(ending.begin(), ending.end(), context_));
}

void TimeLease::Ending::is_over() {
  if (context_ == nullptr) return;
  const Holding holding{lease_.lock_};
  lease_.forget(context_);
}

}  // namespace cuvmm
