// SPDX-License-Identifier: Apache-2.0
// Contexts that end while work is in flight, and the end of the process.
#include "unit/sched_world.hpp"

namespace cuvmm::test {
namespace {

using SchedulingEnds = SchedulerTest;

TEST_F(SchedulingEnds, ContextsMayEndConcurrently) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState* streams[] = {&streams_.add(StreamKind::NonBlocking, 1),
                                  &streams_.add(StreamKind::NonBlocking, 2)};
  device_.is_stuck = true;
  for (const StreamState* stream : streams) submit(client, on(*stream), 1);
  Door door;
  submit(client, on(streams_.add(StreamKind::NonBlocking, 3)), door);
  door.wait_until_reached();
  std::vector<std::thread> threads;
  for (const StreamState* stream : streams) {
    threads.emplace_back([&scheduler, stream] { scheduler.context_ends(stream->context); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // both wait while the door is closed
  door.open();
  for (std::thread& thread : threads) thread.join();
  // Those that gave up, because the door was closed for too long, are left a little later.
  EXPECT_TRUE(soon([&] { return device_.drops == 2; }));
  device_.is_stuck = false;
}

// The context's events have ended with it.
TEST_F(SchedulingEnds, AContextThatTheIssuingThreadLeavesTooLateIsNotPassedToTheDriver) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& ending = streams_.add(StreamKind::NonBlocking, 1);
  const StreamState& other = streams_.add(StreamKind::NonBlocking, 2);
  device_.is_stuck = true;
  submit(client, on(ending), 1);
  Door door;
  submit(client, on(other), door);
  door.wait_until_reached();
  scheduler.context_ends(ending.context);  // gives up, as the door is closed

  scheduler.context_ended(ending.context);
  door.open();

  submit(client, on(other), 2);
  EXPECT_TRUE(soon([&] { return issued_.count() == 2; }));
  EXPECT_EQ(device_.drops, 0);
  device_.is_stuck = false;
}

TEST_F(SchedulingEnds, ParkingEndsThePace) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  device_.is_stuck = true;
  for (int i = 0; i < 500; ++i) submit(client, on(stream), i);
  EXPECT_TRUE(soon([&] { return issued_.count() == 256; }));
  scheduler.park(Duration{60'000'000});
  EXPECT_EQ(issued_.count(), 500U);
}

// The process's end did not wait for the call that the issuing thread was in.
TEST_F(SchedulingEnds, WaitersReturnIfTheIssuingThreadHasStopped) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  Door door;
  submit(client, on(stream), door);
  submit(client, on(stream), 1);
  door.wait_until_reached();
  std::atomic<int> returned{0};
  std::thread settles{[&] {
    scheduler.settle_stream(stream);
    ++returned;
  }};
  std::thread has_his_turn{[&] {
    const Scheduler::Turn turn{scheduler, client, on(stream)};
    EXPECT_FALSE(turn.was_taken());
    ++returned;
  }};
  EXPECT_TRUE(soon([&] { return client.lane(0)->submitted() == 3; }));
  scheduler.park(Duration{1'000});
  door.open();
  EXPECT_TRUE(soon([&] { return returned == 2; }));
  EXPECT_EQ(issued_.count(), 0U);
  settles.join();
  has_his_turn.join();
}

}  // namespace
}  // namespace cuvmm::test
