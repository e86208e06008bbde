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

// At which places the program has recorded its events, as far as frees were unfinished there.
//
// An event means its last record, and any thread may record it again at any time. So a record ends
// what was known before the driver is called, and an answer of the driver's about an event counts
// only if the event was not recorded again between the question and the answer.
class EventPlaces {
 public:
  // In the work of streams: the last free of each that comes before it.
  using Place = std::vector<FreeTicket>;

  // What an event was recorded at, and which record that was.
  struct Recorded {
    Place place;  // empty where nothing is known
    std::uint64_t serial = 0;
  };

  // False where nothing is known of the event. Threads that poll events only read here, so that
  // they do not hold each other up.
  bool may_know(CUevent event) const {
    return group_of(event).known.load(std::memory_order_acquire) != 0;
  }
  Recorded last_record(CUevent event) const {
    return may_know(event) ? look_up(event) : Recorded{};
  }
  // It has not been recorded since, nor is it being recorded now.
  bool is_still(CUevent event, const Recorded& recorded) const;

  // One record, from before the driver is asked until it has answered.
  class Recording {
   public:
    Recording(EventPlaces& places, CUevent event);
    // Where the driver refused, or `done_at` was not called, nothing is known of the event.
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    // The driver has recorded it at a place that was read before it was asked.
    void done_at(Place place) { place_ = std::move(place); }

   private:
    EventPlaces& places_;
    const CUevent event_;
    std::uint64_t begun_ = 0;  // 0: another record was under way
    Place place_;
  };

  // Whenever they like, by others: what the event says is not of a record that we saw.
  void recorded_unseen(CUevent event);

  // The event has happened; its place need not be known any longer.
  void reached(CUevent event, const Recorded& recorded);
  void ended(CUevent event);

 private:
  // Events by their handles, so that those of different threads are mostly apart.
  struct alignas(64) Group {
    std::atomic<std::size_t> known{0};  // events in either of what the lock guards
    // Records: how many are under way (the low half), and how many ever began.
    std::atomic<std::uint64_t> records{0};
    mutable Lock lock{LockOrder::Streams};  // guards what follows; nobody holds two
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
