// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "engine/watch.hpp"
#include "engine/yielding.hpp"
#include "lease/leases.hpp"
#include "sched/estimates.hpp"
#include "stream/call_barrier.hpp"
#include "stream/captures.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// Shares this process's device time with other processes (docs/scheduling.md). While others
// compete, it watches the calls that submit device work: a call waits until the process holds the
// grant and has little enough in flight. A dedicated thread tells the service when the process has
// no work left or, after losing the grant, nothing in flight. Without competition it watches
// nothing.
//
// Every wait for others is bounded, after which the call proceeds natively: no program hangs
// because of another program or of the service. A wait for time under the process's own cap lasts
// as long as the cap demands.
class TimeLease final : public lease::TimeSharer, private Watcher {
 public:
  struct Dependencies {
    const Driver& driver;
    Watch& watch;
    CallBarrier& calls;
    Captures& captures;
    LegacyBarrier& legacy;
  };
  explicit TimeLease(const Dependencies& dependencies) : dependencies_(dependencies) {}

  void begin(lease::Leases& leases, lease::Grants& grants) override;

  // Whether submitted() must be called.
  bool counts() const { return counts_.load(std::memory_order_acquire); }
  // Call after the driver has seen the call, on the thread that made it. Calls of one kind are
  // assumed to take about the same time.
  void submitted(Call call, StreamName stream, std::uint64_t kind);
  // The same for a call that may hold its stream. The call itself is not in flight, since it does
  // not use the device; work behind it is in flight until it has really ended.
  void may_hold(StreamName stream);

  class Ending;
  // Call once all work has ended. The thread then makes no driver call until there is work again.
  void forget_ended_work();
  // For the end of the process: no call waits any longer, and the thread stays out of the driver.
  void shut_down();

 private:
  // A stream, and the work submitted to it since the last mark.
  struct Stream {
    CUcontext context = nullptr;
    CUstream handle = nullptr;
    std::uint64_t thread = 0;  // owner of the default stream
    std::uint32_t operations = 0;
    std::uint64_t estimate_ns = 0;
    std::uint64_t kind = 0;  // shared by all operations; 0 if they differ
    bool may_be_held = false;
    std::uint32_t holds_seen = 0;  // on the other side of the legacy barrier
    std::uint64_t began_at = 0;
    CUevent last_mark = nullptr;  // the last that completed
    std::uint64_t last_mark_at = 0;

    bool is(const Stream& other) const {
      return context == other.context && handle == other.handle && thread == other.thread;
    }
  };
  // Work up to a mark in its stream.
  struct Flight {
    Stream of;
    // nullptr on the legacy stream, where a mark would order other streams.
    CUevent mark = nullptr;
  };
  static constexpr std::size_t most_streams = 16;
  static constexpr std::size_t most_flights = 64;
  // Why a call may not give the device work yet.
  enum class Obstacle : std::uint8_t {
    None,
    Grant,       // the process has no time grant
    Foreground,  // it has one, but a process of higher priority has work
    Window,      // it has enough in flight
  };
  // Never freed, since threads read it without a lock.
  struct OfDevice {
    int ordinal = -1;
    node::GrantWords* words = nullptr;      // nullptr: the service does not know the device
    std::atomic<std::uint32_t> waiting{0};  // number of threads
    Yielding yielding;
    // Under lock_.
    Estimates estimates;
    std::array<Stream, most_streams> streams;
    std::size_t stream_count = 0;
    std::size_t next_to_replace = 0;
    bool others_may_be_held = false;  // streams not in `streams`
    // Calls that may have held a stream.
    std::uint32_t holds_of_legacy_stream = 0;
    std::uint32_t holds_of_other_streams = 0;
    std::array<Flight, most_flights> flights;  // in submission order
    std::size_t flight_count = 0;
    std::size_t marks_being_made = 0;  // of work that is in no flight yet
    std::uint64_t admitted_at = 0;     // when a call that has not been submitted yet was admitted
    std::uint64_t in_flight_ns = 0;    // estimated
    std::uint64_t ends_at = 0;         // estimated, including work without a mark
    std::uint64_t progress_at = 0;
    std::uint32_t let_through = 0;  // operations admitted without room
    std::uint32_t next_to_let_through = 1;
    std::uint64_t idle_since = 0;
  };

  CUresult before(const CallSite& site) override;
  OfDevice* device_of_this_thread();
  OfDevice* make_device(int ordinal);
  Obstacle obstacle_to_launch(OfDevice& device);
  // `above` has a bit for the slot of each foreground board to check.
  bool lets_others_go_first(OfDevice& device, std::uint32_t grant, std::uint32_t above) const;
  bool has_room(OfDevice& device);
  void wait_to_launch(OfDevice& device, Call call);
  void wants(OfDevice& device);
  void suspend_sharing(const char* why);

  static Stream named(CUcontext context, StreamName stream);
  static Stream* find(OfDevice& device, const Stream& stream);
  Stream& find_or_add(OfDevice& device, CUcontext current, StreamName name);
  void note_holds_across_barrier(const OfDevice& device, Stream& stream) const;
  CUevent mark(const Stream& stream);
  void look_at_flights(OfDevice& device, std::uint64_t now);
  bool is_done(const Flight& flight);
  bool is_ending(CUcontext context) const;
  void has_ended(OfDevice& device, const Flight& flight, std::uint64_t now);
  void forget(CUcontext context);
  CUevent take_event(CUcontext context);
  void give_back(CUcontext context, CUevent event);

  static void* run(void* lease);
  void keep_looking();
  void look_at_board();
  std::uint64_t look_at(OfDevice& device);

  const Dependencies dependencies_;
  lease::Leases* leases_ = nullptr;  // set, with grants_, before the thread starts
  lease::Grants* grants_ = nullptr;
  std::atomic<bool> counts_{false};
  std::atomic<bool> stays_out_{false};
  std::atomic<bool> is_looking_{false};
  std::atomic<std::uint64_t> natively_until_{0};
  std::array<std::atomic<OfDevice*>, node::GrantBoard::most_devices> devices_{};

  Lock lock_{LockOrder::TimeLease};  // guards the members below
  struct Spare {
    CUcontext context;
    CUevent event;
  };
  std::vector<Spare> spare_;
  std::vector<CUcontext> ending_;
};

// A driver call that may end a context. Construct it before the call: from then on the context's
// events are not queried, and its work counts as in flight until the call is over.
class TimeLease::Ending {
 public:
  // nullptr: no context.
  Ending(TimeLease& lease, CUcontext context);
  // If is_over() was not called, the context stays.
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  // The context has ended, and its events with it.
  void is_over();

 private:
  TimeLease& lease_;
  const CUcontext context_;
};

}  // namespace cuvmm
