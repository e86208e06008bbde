// SPDX-License-Identifier: Apache-2.0
// How launches wait while processes share a device's time.
#include "engine/time_lease.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log_rarely.hpp"
#include "base/not_cancelled.hpp"
#include "base/start_thread.hpp"
#include "engine/device_work.hpp"
#include "engine/hook_bypass.hpp"
#include "trace/futex.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

using node::TimeGrant;

constexpr std::uint64_t ms = 1'000'000;
// While any client waits, the service updates its heartbeat every 100 ms, and grants within little
// more than a second.
constexpr std::uint64_t longest_silence_ns = 500 * ms;
constexpr std::uint64_t longest_wait_ns = 5'000 * ms;
constexpr std::uint64_t natively_for_ns = 10'000 * ms;
// Work in flight may depend on the very call that waits for it.
constexpr std::uint64_t patience_ns = 5 * ms;
constexpr std::uint32_t most_let_through = 1'024;
constexpr std::uint32_t long_window_us = 1'000;
// Much less than the time for which work may outlast its quantum (TimeSettings::outlasts).
constexpr std::uint64_t longest_to_queue_behind_ns = 20 * ms;
constexpr std::uint64_t idle_after_ns = node::wants_after_work * 1'000;
constexpr std::uint64_t rest_ns = 1'000 * ms;
// Of a thread that waits for room in the window.
constexpr std::uint64_t shortest_rest_ns = 10'000;
constexpr std::uint64_t longest_rest_ns = 100'000;
constexpr std::uint64_t longest_look_ns = ms / 2;
// The driver may take long to accept a launch, and a refused call is never seen again.
constexpr std::uint64_t longest_launch_ns = 50 * ms;
// Work that has outlasted its estimate is reported to last until the next look, even if that look
// comes late because the machine is busy.
constexpr std::uint64_t next_look_ns = 4 * longest_look_ns;

// Shorter waits are not recorded, so that a loop of launches that each wait briefly does not flood
// the trace. The shortest quantum of another process is a hundred times as long.
constexpr std::uint64_t shortest_recorded_wait_ns = 20'000;

void record_grant_wait(int device, Call call, std::uint64_t since) {
  if (!trace_is_on()) return;
  const std::uint64_t waited = now_ns() - since;
  if (waited < shortest_recorded_wait_ns) return;
  record_event({.time = since,
                .event = TraceEvent::TimeGrantWait,
                .device = static_cast<std::int16_t>(device),
                .call = static_cast<std::uint16_t>(call),
                .other = waited});
}

// A small part of the work in flight, so that the device has work left when a thread wakes up.
std::uint64_t rest_during(std::uint64_t in_flight_ns) {
  return std::clamp(in_flight_ns / 16, shortest_rest_ns, longest_rest_ns);
}

Duration as_duration(std::uint64_t ns) {
  return std::chrono::ceil<Duration>(std::chrono::nanoseconds{ns});
}

// By default Linux may wake a sleeping thread 50 us late (its timer slack), long enough for a
// device that runs short kernels to go idle.
class ShortSleep {
 public:
  ShortSleep() : slack_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1UL); }
  ~ShortSleep() {
    if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
  }
  ShortSleep(const ShortSleep&) = delete;
  ShortSleep& operator=(const ShortSleep&) = delete;

  void sleep(std::uint64_t ns) const { rest_us(static_cast<useconds_t>(ns / 1'000)); }

 private:
  const int slack_;
};

}  // namespace

void TimeLease::begin(lease::Leases& leases, lease::Grants& grants) {
  leases_ = &leases;
  grants_ = &grants;
  if (start_detached_thread(&TimeLease::run, this) != 0) {
    CUVMM_LOG(Warning,
              "cannot start the thread that shares device time; launches do not wait for other "
              "processes");
  }
}

// Captured calls give the device no work, and an event of cuvmm's would break some captures.
CUresult TimeLease::before(const CallSite& site) {
  const bool is_work = site.call < Call{call_count} && is_device_work(site.call);
  if (!is_work || stays_out_.load() || dependencies_.captures.any()) return CUDA_SUCCESS;
  OfDevice* const device = device_of_this_thread();
  if (device != nullptr && obstacle_to_launch(*device) != Obstacle::None) {
    wait_to_launch(*device, site.call);
  }
  return CUDA_SUCCESS;
}

TimeLease::OfDevice* TimeLease::device_of_this_thread() {
  CUdevice ordinal = -1;
  const CUresult answer = dependencies_.driver.cuCtxGetDevice_v2000(&ordinal);
  const bool is_known =
      answer == CUDA_SUCCESS && ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices_.size();
  if (!is_known) return nullptr;
  OfDevice* device = devices_[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
  if (device == nullptr) device = make_device(ordinal);
  return device->words != nullptr ? device : nullptr;
}

TimeLease::OfDevice* TimeLease::make_device(int ordinal) {
  auto& place = devices_[static_cast<std::size_t>(ordinal)];
  const Holding holding{lock_};
  if (OfDevice* const known = place.load()) return known;
  auto* const made = new OfDevice{.ordinal = ordinal};
  CUuuid uuid{};
  if (dependencies_.driver.cuDeviceGetUuid(&uuid, ordinal) == CUDA_SUCCESS) {
    for (node::GrantWords& words : grants_->board()->devices) {
      const bool is_it = std::memcmp(words.device.data(), uuid.bytes, words.device.size()) == 0;
      if (is_it) made->words = &words;
    }
  }
  place.store(made, std::memory_order_release);
  return made;
}

TimeLease::Obstacle TimeLease::obstacle_to_launch(OfDevice& device) {
  const std::uint64_t natively_until = natively_until_.load(std::memory_order_relaxed);
  if (natively_until != 0 && now_ns() < natively_until) return Obstacle::None;
  const std::uint32_t word = device.words->grant.load(std::memory_order_acquire);
  const TimeGrant grant = node::grant_in(word);
  if (grant == TimeGrant::Open) return Obstacle::None;
  // Sequentially consistent with `waiting`: look_at() clears `wants` and then checks for waiting
  // threads, while a waiting thread counts itself in and then checks `wants`.
  if (device.words->wants.load() == 0) wants(device);
  if (grant != TimeGrant::Held) return Obstacle::Grant;
  const std::uint32_t above = device.words->yields_to.load(std::memory_order_relaxed);
  if (above != 0 && lets_others_go_first(device, word, above)) return Obstacle::Foreground;
  return has_room(device) ? Obstacle::None : Obstacle::Window;
}

// All boards of one service list the devices in the same order.
bool TimeLease::lets_others_go_first(OfDevice& device, std::uint32_t grant,
                                     std::uint32_t above) const {
  const std::ptrdiff_t index = device.words - grants_->board()->devices.data();
  for (std::uint32_t slot = 0; slot < node::GrantBoard::most_foregrounds; ++slot) {
    if ((above >> slot & 1) == 0) continue;
    const node::GrantBoard* const board = grants_->foreground(slot);
    if (board == nullptr) continue;
    const auto& wants = board->devices[static_cast<std::size_t>(index)].wants;
    if (wants.load(std::memory_order_acquire) == 0) continue;
    return device.yielding.must_wait(grant, now_ns());
  }
  return false;
}

// Also wakes this process's own thread, which now has work to track.
void TimeLease::wants(OfDevice& device) {
  if (device.words->wants.exchange(1) != 0) return;
  leases_->say_time_news();
  wake_all_shared(grants_->board()->changes);
}

bool TimeLease::has_room(OfDevice& device) {
  const std::uint32_t window_us = device.words->window.load(std::memory_order_relaxed);
  if (window_us == 0) return true;
  const Holding holding{lock_};
  // A second operation, so that kernels longer than the window leave no gap between them on the
  // device. Two long ones could outlast the quantum, and the first of all may be long.
  const bool may_queue_second = window_us >= long_window_us && device.flight_count == 1 &&
                                device.estimates.has_learnt() &&
                                device.in_flight_ns <= longest_to_queue_behind_ns;
  const bool fits = device.flight_count == 0 || may_queue_second ||
                    device.in_flight_ns < std::uint64_t{window_us} * 1'000;
  if (!fits && device.let_through == 0) return false;
  if (!fits) --device.let_through;
  device.admitted_at = now_ns();
  return true;
}

void TimeLease::wait_to_launch(OfDevice& device, Call call) {
  device.waiting.fetch_add(1);
  const std::uint64_t asked_at = now_ns();
  std::uint64_t within_cap_since = asked_at;
  std::uint64_t waits_for_grant_since = 0;
  const auto grant_wait_ends = [&] {
    const std::uint64_t since = std::exchange(waits_for_grant_since, 0);
    if (since != 0) record_grant_wait(device.ordinal, call, since);
  };
  const ShortSleep short_sleep;
  // A pause of the process waits for this call, so the call stops waiting when a pause begins.
  const auto may_wait = [&] {
    return counts() && !stays_out_.load() && !dependencies_.calls.is_shut();
  };
  while (may_wait()) {
    const Obstacle obstacle = obstacle_to_launch(device);
    if (obstacle == Obstacle::None) break;
    const std::uint64_t now = now_ns();
    if (obstacle == Obstacle::Window) {
      grant_wait_ends();
    } else if (waits_for_grant_since == 0) {
      waits_for_grant_since = now;
    }
    const std::uint32_t word = device.words->grant.load(std::memory_order_acquire);
    if (node::grant_in(word) == TimeGrant::None) {
      const node::GrantBoard& board = *grants_->board();
      const std::uint64_t beat = board.beat_ns.load(std::memory_order_relaxed);
      if (board.is_over_cap.load(std::memory_order_relaxed) != 0) within_cap_since = now;
      if (now > std::max(beat, asked_at) + longest_silence_ns) {
        suspend_sharing("the node service is silent");
      } else if (now > within_cap_since + longest_wait_ns) {
        suspend_sharing("no grant of device time has come");
      } else {
        wait_while_shared(device.words->grant, word, Duration{5'000});
      }
      continue;
    }
    std::uint64_t rest = shortest_rest_ns;
    {
      const Holding holding{lock_};
      look_at_flights(device, now);
      if (obstacle == Obstacle::Window) rest = rest_during(device.in_flight_ns);
      const std::uint64_t first_ns =
          device.flight_count == 0 ? 0 : device.flights[0].of.estimate_ns;
      if (now > std::max(device.progress_at, asked_at) + patience_ns + 2 * first_ns) {
        device.let_through = device.next_to_let_through;
        device.next_to_let_through = std::min(2 * device.let_through, most_let_through);
        device.progress_at = now;
        continue;
      }
    }
    short_sleep.sleep(rest);
  }
  device.waiting.fetch_sub(1);
  grant_wait_ends();
}

void TimeLease::suspend_sharing(const char* why) {
  natively_until_.store(now_ns() + natively_for_ns);
  CUVMM_LOG_RARELY(Warning, "%s: launching without sharing device time for %.0f s", why,
                   static_cast<double>(natively_for_ns) / 1e9);
}

void* TimeLease::run(void* lease) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-time");
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  const HookBypass bypass;
  static_cast<TimeLease*>(lease)->keep_looking();
  return nullptr;
}

void TimeLease::keep_looking() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  dependencies_.driver.cuThreadExchangeStreamCaptureMode(&mode);
  for (;;) {
    const std::uint32_t seen = grants_->board()->changes.load(std::memory_order_acquire);
    std::uint64_t rest = rest_ns;
    is_looking_.store(true);
    if (stays_out_.load()) break;
    look_at_board();
    for (const auto& place : devices_) {
      OfDevice* const device = place.load(std::memory_order_acquire);
      if (device != nullptr && device->words != nullptr) rest = std::min(rest, look_at(*device));
    }
    is_looking_.store(false);
    wait_while_shared(grants_->board()->changes, seen, as_duration(rest));
  }
  is_looking_.store(false);
}

void TimeLease::look_at_board() {
  const auto& devices = grants_->board()->devices;
  const bool competes = std::any_of(devices.begin(), devices.end(), [](const auto& words) {
    return node::grant_in(words.grant.load(std::memory_order_acquire)) != TimeGrant::Open;
  });
  if (competes == counts()) return;
  // Whoever sees that it counts relies on the calls being watched.
  if (competes) dependencies_.watch.begin(*this, Effect::Submits);
  counts_.store(competes);
  if (!competes) dependencies_.watch.end(*this);
}

void TimeLease::forget_ended_work() {
  for (const auto& place : devices_) {
    OfDevice* const device = place.load(std::memory_order_acquire);
    if (device == nullptr) continue;
    const Holding holding{lock_};
    look_at_flights(*device, now_ns());
  }
}

// Returns the time until the next look, in ns.
std::uint64_t TimeLease::look_at(OfDevice& device) {
  const std::uint64_t now = now_ns();
  node::GrantWords& words = *device.words;
  bool is_in_flight = false;
  std::uint64_t rest = rest_ns;
  std::uint64_t idle_for = 0;
  // Read first: a thread that no longer waits has been admitted.
  const bool waits = device.waiting.load() != 0;
  {
    const Holding holding{lock_};
    look_at_flights(device, now);
    const bool is_launching =
        device.admitted_at != 0 && now < device.admitted_at + longest_launch_ns;
    is_in_flight = is_launching || device.flight_count != 0 || now < device.ends_at;
    if (is_in_flight) {
      rest = device.ends_at > now ? device.ends_at - now : 0;
      const std::uint64_t at_least_until = now + next_look_ns;
      words.in_flight_until_ns.store(std::max(device.ends_at, at_least_until),
                                     std::memory_order_relaxed);
    }
    if (is_in_flight || waits || device.idle_since == 0) device.idle_since = now;
    idle_for = now - device.idle_since;
  }
  const std::uint32_t word = words.grant.load(std::memory_order_acquire);
  if (is_in_flight || waits) {
    if (counts()) wants(device);
  } else if (words.wants.load() != 0) {
    const bool is_idle = idle_for >= idle_after_ns || node::grant_in(word) != TimeGrant::Held;
    rest = idle_after_ns;
    if (is_idle) {
      words.wants.store(0);
      leases_->say_time_news();
      // A thread may have begun to wait in between.
      if (device.waiting.load() != 0) wants(device);
    }
  }
  const bool has_lost_it = node::grant_in(word) == TimeGrant::None;
  if (has_lost_it && !is_in_flight && words.drained.exchange(word) != word) {
    leases_->say_time_news();
  }
  constexpr std::uint64_t shortest_rest = 50'000;
  return is_in_flight ? std::clamp(rest, shortest_rest, longest_look_ns) : rest;
}

void TimeLease::shut_down() {
  stays_out_.store(true);
  const std::uint64_t until = now_ns() + 1'000 * ms;
  while (is_looking_.load() && now_ns() < until) rest_us(50);
}

}  // namespace cuvmm
