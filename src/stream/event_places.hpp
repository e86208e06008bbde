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

// At which places the program has recorded its events, as far as frees were unfinished there. Who
// names an event of which nothing is known only reads, so that threads which poll events do not
// hold each other up.
class EventPlaces {
 public:
  // In the work of streams: the last free of each that comes before it.
  using Place = std::vector<FreeTicket>;

  // False where nothing is known of the event. Whoever a record comes before sees it; of one that
  // is made at the same time nothing is known yet.
  bool may_know(CUevent event) const {
    return group_of(event).known.load(std::memory_order_acquire) != 0;
  }
  // Empty where nothing is known.
  Place of(CUevent event) const { return may_know(event) ? look_up(event) : Place{}; }

  void recorded(CUevent event, Place place);
  // Whenever they like, by others: what the event says is not of a record that we saw.
  void recorded_unseen(CUevent event);

  // The event has happened; known is only what it was recorded at since.
  void reached(CUevent event, const Place& place);
  // It was recorded where it says nothing of frees.
  void forget_record(CUevent event);
  void ended(CUevent event);

 private:
  // Events by their handles, so that those of different threads are mostly apart.
  struct alignas(64) Group {
    std::atomic<std::size_t> known{0};      // events in either of what follows
    mutable Lock lock{LockOrder::Streams};  // guards what follows; nobody holds two
    std::unordered_map<CUevent, Place> places;
    std::unordered_set<CUevent> recorded_unseen;

    void count();
  };
  static constexpr std::size_t groups = 64;

  Place look_up(CUevent event) const;

  static std::size_t number_of_group(CUevent event) {
    return (reinterpret_cast<std::uint64_t>(event) * 0x9E3779B97F4A7C15u >> 32) % groups;
  }
  Group& group_of(CUevent event) { return groups_[number_of_group(event)]; }
  const Group& group_of(CUevent event) const { return groups_[number_of_group(event)]; }

  std::array<Group, groups> groups_;
};

}  // namespace cuvmm
