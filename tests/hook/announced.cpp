// SPDX-License-Identifier: Apache-2.0
// Subsystems with pending state are notified of every call that could observe it, before the driver
// sees the call. One test per row of driver_api.def, so that new rows are covered from the start.
#include <gtest/gtest.h>

#include "hook/driver_behind.hpp"

namespace cuvmm::test {
namespace {

using hook::Flavour;

std::vector<Call> rows(bool neutral) {
  std::vector<Call> rows;
  for (std::size_t i = 0; i < call_count; ++i) {
    const Call call = static_cast<Call>(i);
    if ((info(call).effect == Effect::Neutral) == neutral) rows.push_back(call);
  }
  return rows;
}

std::string name_of(const ::testing::TestParamInfo<Call>& row) {
  return info(row.param).symbol;
}

void* door_of(Call call, Flavour flavour) {
  const hook::DoorPair& pair = hook::all_doors()[static_cast<std::size_t>(call)];
  return flavour == Flavour::Legacy ? pair.legacy : pair.per_thread;
}

class RowWithAnEffect : public ::testing::TestWithParam<Call> {
 protected:
  void SetUp() override {
    engine_over_silent_driver();
    take_reached();
  }
};

void expect_announced_before_the_driver_sees_it(Call call, Flavour flavour) {
  const Listener listener;
  call_with_zeros(call, door_of(call, flavour));
  const std::vector<Reached> seen = take_reached();
  bool was_reached = false;
  for (const Reached& one : seen) {
    if (one.call != call || one.flavour != flavour) continue;
    was_reached = true;
    EXPECT_TRUE(listener.has_heard(call, info(call).effect, one.announced))
        << "the driver was called and nobody was told";
  }
  EXPECT_TRUE(was_reached) << "the call did not reach the driver";
}

TEST_P(RowWithAnEffect, IsAnnouncedBeforeTheDriverSeesIt) {
  expect_announced_before_the_driver_sees_it(GetParam(), Flavour::Legacy);
  if (door_of(GetParam(), Flavour::PerThread) == nullptr) return;
  expect_announced_before_the_driver_sees_it(GetParam(), Flavour::PerThread);
}

TEST_P(RowWithAnEffect, LeavesANoteIfItSubmits) {
  SubmissionEpoch& note = engine_over_silent_driver().submission_epoch();
  note.take();
  call_with_zeros(GetParam(), door_of(GetParam(), Flavour::Legacy));
  EXPECT_EQ(note.is_left(), has(info(GetParam()).effect, Effect::Submits));
}

TEST_P(RowWithAnEffect, IsAnnouncedOnlyToSubsystemsThatWait) {
  const auto others = static_cast<Effect>(static_cast<std::uint8_t>(every_effect) &
                                          ~static_cast<std::uint8_t>(info(GetParam()).effect));
  const Listener listener{others};
  call_with_zeros(GetParam(), door_of(GetParam(), Flavour::Legacy));
  EXPECT_TRUE(listener.heard().empty());
}

INSTANTIATE_TEST_SUITE_P(All, RowWithAnEffect, ::testing::ValuesIn(rows(false)), name_of);

class NeutralRow : public ::testing::TestWithParam<Call> {};

TEST_P(NeutralRow, DisturbsNobodyAndLeavesNoNote) {
  Engine& engine = engine_over_silent_driver();
  engine.submission_epoch().take();
  take_reached();
  const Listener listener;
  call_with_zeros(GetParam(), door_of(GetParam(), Flavour::Legacy));
  EXPECT_TRUE(listener.heard().empty());
  EXPECT_FALSE(engine.submission_epoch().is_left());
}

INSTANTIATE_TEST_SUITE_P(All, NeutralRow, ::testing::ValuesIn(rows(true)), name_of);

// Shows that the tests above would notice a call that is forwarded unannounced.
TEST(Announcement, IsMissingForACallMadeInsideAnother) {
  engine_over_silent_driver();
  take_reached();
  const Listener listener;
  const HookBypass bypass;
  call_with_zeros(Call::cuLaunchKernel, door_of(Call::cuLaunchKernel, Flavour::Legacy));
  const auto seen = take_reached();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_FALSE(listener.has_heard(Call::cuLaunchKernel, info(Call::cuLaunchKernel).effect,
                                  seen.front().announced));
}

TEST(Guard, ForwardsTheDriversOwnCallsDirectly) {
  engine_over_silent_driver().submission_epoch().take();
  take_reached();
  const Listener listener;
  let_driver_do(Call::cuModuleLoadData, [] {
    call_with_zeros(Call::cuMemAlloc_v2, door_of(Call::cuMemAlloc_v2, Flavour::Legacy));
  });

  call_with_zeros(Call::cuModuleLoadData, door_of(Call::cuModuleLoadData, Flavour::Legacy));

  const auto seen = take_reached();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].call, Call::cuModuleLoadData);
  EXPECT_EQ(seen[1].call, Call::cuMemAlloc_v2);
  ASSERT_EQ(listener.heard().size(), 1u);
  EXPECT_EQ(listener.heard()[0].call, Call::cuModuleLoadData);
}

}  // namespace
}  // namespace cuvmm::test
