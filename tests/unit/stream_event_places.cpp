// SPDX-License-Identifier: Apache-2.0
#include "stream/event_places.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

namespace cuvmm::test {
namespace {

using Place = EventPlaces::Place;

CUevent event(std::uint64_t number) {
  return reinterpret_cast<CUevent>(number * 64);
}
Place after(std::uint64_t tick) {
  return {{.stream = 1, .tick = tick}};
}

void record(EventPlaces& places, CUevent event, const Place& place) {
  EventPlaces::Recording recording{places, event};
  if (!place.empty()) recording.done_at(place);
}

TEST(EventPlaces, KnowWhereAnEventWasRecordedLast) {
  EventPlaces places;
  EXPECT_FALSE(places.may_know(event(1)));
  EXPECT_TRUE(places.last_record(event(1)).place.empty());
  record(places, event(1), after(5));
  EXPECT_EQ(places.last_record(event(1)).place, after(5));
  record(places, event(1), after(6));
  EXPECT_EQ(places.last_record(event(1)).place, after(6));
  record(places, event(1), {});
  EXPECT_TRUE(places.last_record(event(1)).place.empty());
  EXPECT_FALSE(places.may_know(event(1)));
}

TEST(EventPlaces, ForgetAReachedPlaceButNotALaterOne) {
  EventPlaces places;
  record(places, event(1), after(5));
  const EventPlaces::Recorded first = places.last_record(event(1));
  record(places, event(1), after(5));
  EXPECT_FALSE(places.is_still(event(1), first)) << "the same place, but another record";
  places.reached(event(1), first);
  EXPECT_EQ(places.last_record(event(1)).place, after(5));
  places.reached(event(1), places.last_record(event(1)));
  EXPECT_FALSE(places.may_know(event(1)));
}

TEST(EventPlaces, KnowNothingOfWhatOthersRecordUntilItEnds) {
  EventPlaces places;
  record(places, event(1), after(5));
  places.recorded_unseen(event(1));
  EXPECT_TRUE(places.last_record(event(1)).place.empty());
  record(places, event(1), after(6));
  EXPECT_TRUE(places.last_record(event(1)).place.empty());
  places.ended(event(1));
  EXPECT_FALSE(places.may_know(event(1)));
  record(places, event(1), after(7));
  EXPECT_EQ(places.last_record(event(1)).place, after(7));
}

TEST(EventPlaces, AreKeptForEachOfManyEvents) {
  constexpr std::uint64_t many = 1000;
  EventPlaces places;
  for (std::uint64_t i = 0; i < many; ++i) record(places, event(i), after(i + 1));
  for (std::uint64_t i = 0; i < many; i += 2) places.ended(event(i));
  for (std::uint64_t i = 0; i < many; ++i) {
    EXPECT_EQ(places.last_record(event(i)).place, i % 2 == 0 ? Place{} : after(i + 1));
  }
  for (std::uint64_t i = 0; i < many; ++i) EventPlaces::Recording{places, event(i)};
  for (std::uint64_t i = 0; i < many; ++i) EXPECT_FALSE(places.may_know(event(i)));
}

TEST(EventPlaces, KnowNothingWhileAnEventIsRecorded) {
  EventPlaces places;
  record(places, event(1), after(5));
  const EventPlaces::Recorded before = places.last_record(event(1));
  {
    EventPlaces::Recording recording{places, event(1)};
    EXPECT_FALSE(places.is_still(event(1), before)) << "the driver may have recorded it by now";
    recording.done_at(after(6));
  }
  EXPECT_FALSE(places.is_still(event(1), before));
  EXPECT_EQ(places.last_record(event(1)).place, after(6));
}

// Nobody can tell which of the two the driver made last.
TEST(EventPlaces, KnowNothingOfTwoRecordsAtOnce) {
  for (const bool first_ends_first : {true, false}) {
    EventPlaces places;
    std::optional<EventPlaces::Recording> first;
    std::optional<EventPlaces::Recording> second;
    first.emplace(places, event(1));
    second.emplace(places, event(1));
    first->done_at(after(5));
    if (first_ends_first) first.reset();
    second.reset();  // from a stream that has freed nothing
    first.reset();
    EXPECT_TRUE(places.last_record(event(1)).place.empty());
  }
}

// Each thread has its own events, and all share one.
TEST(EventPlaces, MayBeReadAndWrittenByManyThreads) {
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t rounds = 2000;
  EventPlaces places;
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const CUevent own = event(1 + thread + threads * (i % 100));
        record(places, own, after(i + 1));
        record(places, event(0), after(i + 1));
        // Empty if a neighbour in its group was recorded meanwhile.
        const Place place = places.last_record(own).place;
        EXPECT_TRUE(place.empty() || place == after(i + 1));
        places.reached(event(0), places.last_record(event(0)));
        places.ended(own);
      }
    });
  }
  for (std::thread& one : all) one.join();
  places.ended(event(0));
  for (std::uint64_t i = 0; i <= threads * 100; ++i) EXPECT_FALSE(places.may_know(event(i)));
}

}  // namespace
}  // namespace cuvmm::test
