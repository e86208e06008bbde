// SPDX-License-Identifier: Apache-2.0
// Streams whose work makes no progress, as if it waited for the host.
#include "unit/sched_world.hpp"

namespace cuvmm::test {
namespace {

// One operation after each `patience` would take longer than any test waits.
constexpr int many = 1000;
constexpr ScheduleSettings settings_of(Schedule policy) {
  return {.policy = policy, .capacity = 4096, .patience = Duration{100'000}};
}
constexpr std::uint64_t more_than_the_window = 60'000;
constexpr std::uint64_t most_in_flight = 256;

class SchedulingHeld : public SchedulerTest {
 protected:
  SchedulingHeld() { device_.stuck_stream = held_.id; }

  void submit_many(Client& client, const StreamState& stream) {
    for (int i = 0; i < many; ++i) submit(client, on(stream, more_than_the_window), i);
  }
  bool all_are_issued_soon(const Client& client, std::uint64_t number) {
    return soon([&] { return client.figures().operations == number; });
  }

  const StreamState& held_ = streams_.add();
  const StreamState& free_ = streams_.add();
};

class HeldStream : public SchedulingHeld, public testing::WithParamInterface<Schedule> {};
using HeldStreamOfOne = HeldStream;

TEST_P(HeldStreamOfOne, DelaysNoOtherStreamOfTheClient) {
  Scheduler& scheduler = start(settings_of(GetParam()));
  Client& ann = scheduler.create_client("ann", 0, 1);
  for (std::uint64_t i = 0; i < most_in_flight; ++i) submit(ann, on(held_), -1);
  submit_many(ann, free_);
  EXPECT_TRUE(all_are_issued_soon(ann, most_in_flight + many));
  device_.stuck_stream = no_stream;
}

INSTANTIATE_TEST_SUITE_P(Under, HeldStreamOfOne,
                         testing::Values(Schedule::Fifo, Schedule::RoundRobin, Schedule::Priority,
                                         Schedule::Fair));

TEST_P(HeldStream, DelaysNoOtherClient) {
  Scheduler& scheduler = start(settings_of(GetParam()));
  // Priorities set a pace only below a higher client.
  submit(scheduler.create_client("idle", 10, 1), on(streams_.add()), -1);
  scheduler.settle_all();
  Client& ann = scheduler.create_client("ann", 0, 1);
  Client& ben = scheduler.create_client("ben", 0, 1);
  // A lane without competition has no pace to keep, so both have work before the first is issued.
  Door door;
  submit(ben, on(free_), door);
  door.wait_until_reached();
  for (int i = 0; i < 50; ++i) submit(ann, on(held_), -1);
  submit_many(ben, free_);
  door.open();
  EXPECT_TRUE(all_are_issued_soon(ben, many + 1));
  const std::size_t of_ann = issued_.place_of(many - 1) - 1 - (many - 1);
  EXPECT_GE(of_ann, 1U);
  EXPECT_LT(of_ann, 20U) << "they would all go first once the stream goes on";
  device_.stuck_stream = no_stream;
}

INSTANTIATE_TEST_SUITE_P(Under, HeldStream,
                         testing::Values(Schedule::RoundRobin, Schedule::Priority, Schedule::Fair));

TEST_F(SchedulingHeld, AHigherClientDelaysNoLowerOne) {
  Scheduler& scheduler = start(settings_of(Schedule::Priority));
  Client& high = scheduler.create_client("high", 10'000, 1);
  Client& low = scheduler.create_client("low", 0, 1);
  submit_many(high, held_);
  ASSERT_TRUE(all_are_issued_soon(high, most_in_flight));
  submit_many(low, free_);
  EXPECT_TRUE(all_are_issued_soon(low, many));
  EXPECT_EQ(high.figures().operations, most_in_flight);
  device_.stuck_stream = no_stream;
}

// What is held may wait for it.
TEST_F(SchedulingHeld, WorkOnOtherStreamsBehindItGoesOnBesideABusyClient) {
  constexpr int pairs = 50;
  Scheduler& scheduler = start({.policy = Schedule::Fair, .patience = Duration{20'000}});
  Client& busy = scheduler.create_client("busy", 0, 1);
  Client& ann = scheduler.create_client("ann", 0, 1);
  const StreamState& of_busy = streams_.add();
  std::atomic<bool> ends{false};
  std::thread submits{[&] {
    while (!ends) submit(busy, on(of_busy, more_than_the_window), -1);
  }};
  for (int i = 0; i < 20; ++i) submit(ann, on(held_), -1);
  for (int i = 0; i < pairs; ++i) {
    submit(ann, on(held_), -1);
    submit(ann, on(free_), i);
  }
  EXPECT_TRUE(all_are_issued_soon(ann, 20 + 2 * pairs));
  device_.stuck_stream = no_stream;
  ends = true;
  submits.join();
}

}  // namespace
}  // namespace cuvmm::test
