// SPDX-License-Identifier: Apache-2.0
#include "stream/event_places.hpp"

#include <gtest/gtest.h>

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

TEST(EventPlaces, KnowWhereAnEventWasRecordedLast) {
  EventPlaces places;
  EXPECT_FALSE(places.may_know(event(1)));
  EXPECT_TRUE(places.of(event(1)).empty());
  places.recorded(event(1), after(5));
  EXPECT_EQ(places.of(event(1)), after(5));
  places.recorded(event(1), after(6));
  EXPECT_EQ(places.of(event(1)), after(6));
  places.recorded(event(1), {});
  EXPECT_TRUE(places.of(event(1)).empty());
  EXPECT_FALSE(places.may_know(event(1)));
}

TEST(EventPlaces, ForgetAPlaceThatWasReachedButNotALaterOne) {
  EventPlaces places;
  places.recorded(event(1), after(5));
  places.recorded(event(1), after(6));
  places.reached(event(1), after(5));
  EXPECT_EQ(places.of(event(1)), after(6));
  places.reached(event(1), after(6));
  EXPECT_FALSE(places.may_know(event(1)));
}

TEST(EventPlaces, KnowNothingOfWhatOthersRecordUntilItEnds) {
  EventPlaces places;
  places.recorded(event(1), after(5));
  places.recorded_unseen(event(1));
  EXPECT_TRUE(places.of(event(1)).empty());
  places.recorded(event(1), after(6));
  EXPECT_TRUE(places.of(event(1)).empty());
  places.ended(event(1));
  EXPECT_FALSE(places.may_know(event(1)));
  places.recorded(event(1), after(7));
  EXPECT_EQ(places.of(event(1)), after(7));
}

TEST(EventPlaces, AreKeptForEachOfManyEvents) {
  constexpr std::uint64_t many = 1000;
  EventPlaces places;
  for (std::uint64_t i = 0; i < many; ++i) places.recorded(event(i), after(i + 1));
  for (std::uint64_t i = 0; i < many; i += 2) places.ended(event(i));
  for (std::uint64_t i = 0; i < many; ++i) {
    EXPECT_EQ(places.of(event(i)), i % 2 == 0 ? Place{} : after(i + 1));
  }
  for (std::uint64_t i = 0; i < many; ++i) places.forget_record(event(i));
  for (std::uint64_t i = 0; i < many; ++i) EXPECT_FALSE(places.may_know(event(i)));
}

// Each thread's events are its own; one is everybody's.
TEST(EventPlaces, AreAskedAndToldByManyThreads) {
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t rounds = 2000;
  EventPlaces places;
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const CUevent own = event(1 + thread + threads * (i % 100));
        places.recorded(own, after(i + 1));
        places.recorded(event(0), after(i + 1));
        EXPECT_EQ(places.of(own), after(i + 1));
        places.reached(event(0), places.of(event(0)));
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
