// SPDX-License-Identifier: Apache-2.0
#include "alloc/move_pace.hpp"

#include <gtest/gtest.h>

namespace cuvmm::test {
namespace {

using Else = MovePace::Else;
using Outcome = MovePace::Outcome;

// As if it had taken a minute.
void attempt(MovePace& pace, Outcome outcome) {
  constexpr std::uint64_t minute = 60'000'000'000;
  pace.note(minute, outcome);
}

TEST(MovePace, TheFirstAttemptNeedNotWait) {
  const MovePace pace;
  EXPECT_FALSE(pace.is_resting(Else::Refused));
  EXPECT_FALSE(pace.is_resting(Else::Spilled));
}

TEST(MovePace, ARequestThatCanBeSpilledWaitsAfterAnyAttempt) {
  for (const Outcome outcome : {Outcome::Moved, Outcome::Futile, Outcome::NoPromise}) {
    MovePace pace;
    attempt(pace, outcome);
    EXPECT_TRUE(pace.is_resting(Else::Spilled));
  }
}

TEST(MovePace, ARequestThatWouldBeRefusedWaitsOnlyAfterAStopForNothing) {
  MovePace pace;
  attempt(pace, Outcome::Moved);
  attempt(pace, Outcome::NoPromise);
  EXPECT_FALSE(pace.is_resting(Else::Refused));
  attempt(pace, Outcome::Futile);
  EXPECT_TRUE(pace.is_resting(Else::Refused));
}

TEST(MovePace, AShortAttemptDoesNotEndALongRest) {
  MovePace pace;
  attempt(pace, Outcome::Moved);
  pace.note(0, Outcome::NoPromise);
  EXPECT_TRUE(pace.is_resting(Else::Spilled));
}

}  // namespace
}  // namespace cuvmm::test
