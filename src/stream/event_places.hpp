// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lock.hpp"
#include "driver/cuda.hpp"
#include "stream/free_ticket.hpp"

namespace cuvmm {

// Remembers where the program last recorded each event, if frees before that place were unfinished.
//
// An event stands for its last record only, and any thread may record it again at any time. So a
// new record forgets the old place before the driver is called, and a driver's answer about an
// event counts only if the event was not recorded again between the query and the answer.
class EventPlaces {
 public:
  // A point in the work of streams: for each stream, its last free before that point.
  using Place = std::vector<FreeTicket>;

  // The place of an event's last record, and the serial number of that record.
  struct Recorded {
    Place place;  // empty if unknown
    std::uint64_t serial = 0;
  };

  // False if nothing is known of the event. Threads that poll events only read here, so they do not
  // contend.
  bool may_know(CUevent event) const {
    return group_of(event).known.load(std::memory_order_acquire) != 0;
  }
  Recorded last_record(CUevent event) const {
    return may_know(event) ? look_up(event) : Recorded{};
  }
  // True if the event has not been recorded again since, and no record of it is in progress.
  bool is_still(CUevent event, const Recorded& recorded) const;

  // One record of an event. Lives from before the driver call until after its answer.
  class Recording {
   public:
    Recording(EventPlaces& places, CUevent event);
    // If the driver refused, or done_at() was not called, nothing is known of the event.
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    // The driver recorded the event. `place` was read before the driver call.
    void done_at(Place place) { place_ = std::move(place); }

   private:
    EventPlaces& places_;
    const CUevent event_;
    std::uint64_t begun_ = 0;  // 0: another record was in progress
    Place place_;
  };

  // Something other than hooked calls (a graph, another process) records the event at unknown
  // times, so its state proves nothing about the records seen here.
  void recorded_unseen(CUevent event);

  // The event has completed, so its place is no longer needed.
  void reached(CUevent event, const Recorded& recorded);
  void ended(CUevent event);

 private:
  // Events grouped by handle, so that threads with different events rarely share a group.
  struct alignas(64) Group {
    std::atomic<std::size_t> known{0};  // events in either container below
    // Records of events: the number in progress (low half), and the number ever begun (high half).
    std::atomic<std::uint64_t> records{0};
    mutable Lock lock{LockOrder::Streams};  // guards the members below; no thread holds two
    std::unordered_map<CUevent, Recorded> places;
    std::unordered_set<CUevent> recorded_unseen;
    std::uint64_t last_serial = 0;

    void count();
  };
  static constexpr std::size_t groups = 256;

  Recorded look_up(CUevent event) const;

  static std::size_t number_of_group(CUevent event) {
    return (reinterpret_cast<std::uint64_t>(event) * 0x9E3779B97F4A7C15u >> 32) % groups;
  }
  Group& group_of(CUevent event) { return groups_[number_of_group(event)]; }
  const Group& group_of(CUevent event) const { return groups_[number_of_group(event)]; }

  std::array<Group, groups> groups_;
};

}  // namespace cuvmm
