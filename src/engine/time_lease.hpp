// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>

#include "engine/watch.hpp"
#include "lease/leases.hpp"
#include "sched/estimates.hpp"
#include "stream/call_barrier.hpp"
#include "stream/captures.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// This process' part in sharing its devices' time with others (docs/scheduling.md). While others
// compete, it watches the calls that give a device work: a call waits until the process has the
// grant and little enough in flight. A thread of its own tells the service when it has no work left
// or, after the grant, nothing in flight. While nobody competes it watches nothing.
//
// Every wait has a bound after which the call goes on as natively: no program hangs because of
// another, or of the service.
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

  // Whether submitted() is to be called.
  bool counts() const { return counts_.load(std::memory_order_acquire); }
  // After the driver has taken the call, on the thread that made it. Equal kinds take about equally
  // long.
  void submitted(Call call, StreamName stream, std::uint64_t kind);

  // Before the driver ends it: no event of it is asked about any more.
  void context_ends(CUcontext context);
  // Nothing waits any more, and the thread stays out of the driver: for the end of the process.
  void stay_out();

 private:
  // A stream, and what was submitted to it since the last mark.
  struct Stream {
    CUcontext context = nullptr;
    CUstream handle = nullptr;
    std::uint64_t thread = 0;  // whose default stream it is
    std::uint32_t operations = 0;
    std::uint64_t estimate_ns = 0;
    std::uint64_t kind = 0;  // of all of them; 0: of several
    std::uint64_t began_at = 0;
    CUevent last_mark = nullptr;  // that has happened
    std::uint64_t last_mark_at = 0;

    bool is(const Stream& other) const {
      return context == other.context && handle == other.handle && thread == other.thread;
    }
  };
  // Work up to a mark in its stream.
  struct Flight {
    Stream of;
    CUevent mark = nullptr;  // none: the legacy stream, which a mark would make wait for others
  };
  static constexpr std::size_t most_streams = 16;
  static constexpr std::size_t most_flights = 64;
  static constexpr std::size_t most_spare = 64;
  // Never freed, since threads look at it without a lock.
  struct OfDevice {
    node::GrantWords* words = nullptr;      // none: the service does not know the device
    std::atomic<std::uint32_t> waiting{0};  // threads
    // Under lock_.
    Estimates estimates;
    std::array<Stream, most_streams> streams;
    std::size_t stream_count = 0;
    std::array<Flight, most_flights> flights;  // in the order in which they were submitted
    std::size_t flight_count = 0;
    std::uint64_t in_flight_ns = 0;  // by estimates
    std::uint64_t ends_at = 0;       // the same, of what has no mark yet too
    std::uint64_t progress_at = 0;
    std::uint32_t let_through = 0;  // operations that need no room
    std::uint32_t next_to_let_through = 1;
    std::uint64_t idle_since = 0;
  };

  CUresult before(const CallSite& site) override;
  OfDevice* device_of_this_thread();
  OfDevice* make_device(int ordinal);
  bool may_launch(OfDevice& device);
  bool has_room(OfDevice& device);
  void wait_to_launch(OfDevice& device);
  void wants(OfDevice& device);
  void go_on_natively(const char* why);

  static Stream* find(OfDevice& device, const Stream& stream);
  CUevent mark(const Stream& stream);
  void look_at_flights(OfDevice& device, std::uint64_t now);
  bool is_done(const Flight& flight);
  void has_ended(OfDevice& device, const Flight& flight, std::uint64_t now);
  CUevent take_event(CUcontext context);
  void give_back(CUcontext context, CUevent event);

  static void* run(void* lease);
  void keep_looking();
  void look_at_board();
  std::uint64_t look_at(OfDevice& device);

  const Dependencies dependencies_;
  lease::Leases* leases_ = nullptr;  // these two before the thread is started
  lease::Grants* grants_ = nullptr;
  std::atomic<bool> counts_{false};
  std::atomic<bool> stays_out_{false};
  std::atomic<bool> is_looking_{false};
  std::atomic<std::uint64_t> natively_until_{0};
  std::array<std::atomic<OfDevice*>, node::GrantBoard::most_devices> devices_{};

  Lock lock_{LockOrder::TimeLease};  // guards what follows
  struct Spare {
    CUcontext context;
    CUevent event;
  };
  std::array<Spare, most_spare> spare_{};
  std::size_t spare_count_ = 0;
};

}  // namespace cuvmm
