// SPDX-License-Identifier: Apache-2.0
// Clients, lanes and the issuing thread, over a fake device.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/sched_world.hpp"

namespace cuvmm::test {
namespace {

class Scheduling : public SchedulerTest {
 protected:
  int marks_of(Client& client, const StreamState& stream, int operations);
};

TEST_F(Scheduling, IssuesWhatIsSubmittedInOrder) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(submit(client, on(stream), i), Taken::Yes);
  scheduler.settle_stream(stream);
  const auto all = issued_.all();
  ASSERT_EQ(all.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(device_.current(), stream.context);
  EXPECT_EQ(client.figures().operations, 100U);
}

TEST_F(Scheduling, ClientsOfOneNameAreNumbered) {
  Scheduler& scheduler = start();
  Client& first = scheduler.create_client("ann", 0, 1);
  EXPECT_EQ(first.name(), "ann");
  EXPECT_EQ(scheduler.create_client("ann", 0, 1).name(), "ann 2");
  EXPECT_EQ(scheduler.create_client("ann", 0, 1).name(), "ann 3");
  scheduler.end_client(first);
  EXPECT_EQ(scheduler.create_client("ann", 0, 1).name(), "ann") << "nobody else has it now";
}

// Submits operations one by one, each after the previous one was issued. Returns how many marks
// that took.
int Scheduling::marks_of(Client& client, const StreamState& stream, int operations) {
  const int before = device_.marks;
  for (int i = 0; i < operations; ++i) {
    const std::size_t issued = issued_.count();
    submit(client, on(stream), i);
    while (issued_.count() == issued) std::this_thread::yield();
  }
  scheduler_->settle_stream(stream);
  return device_.marks - before;
}

TEST_F(Scheduling, ALaneAloneIsMarkedSeldomWhileTheDeviceHasWork) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  int fewest = 1000;  // on a busy machine much time may pass between two of them
  for (int round = 0; round < 300 && fewest >= 20; ++round) {
    device_.is_stuck = true;
    marks_of(client, stream, 1);
    fewest = std::min(fewest, marks_of(client, stream, 20));
    device_.is_stuck = false;
    // Else the rounds would reach the limit of operations in flight, and wait for ever.
    ASSERT_TRUE(soon([&] { return device_.completed == issued_.count(); }));
  }
  EXPECT_LT(fewest, 20);
}

// Two are marked together only if the second arrives before the issuing thread checks again.
TEST_F(Scheduling, ASettledStreamGetsNoMarkAfterwards) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  device_.mark_takes_ms = 50;
  submit(client, on(stream), 1);
  scheduler.settle_stream(stream);
  EXPECT_EQ(device_.marks, 1);
}

TEST_F(Scheduling, OtherStreamsSettleWhileTheThreadIsStuckInTheDriver) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  Door first, second;
  submit(client, on(stream), first);
  first.wait_until_reached();
  submit(client, on(stream), second);  // in time for the same mark
  first.open();
  second.wait_until_reached();
  scheduler.settle_stream(streams_.add());
  second.open();
  scheduler.settle_stream(stream);
  EXPECT_EQ(device_.marks, 1);
}

TEST_F(Scheduling, ALaneThatAnotherMayWaitForIsMarkedOften) {
  Scheduler& scheduler = start({.policy = Schedule::Priority});
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  const StreamState& urgent = streams_.add();
  submit(scheduler.create_client("urgent", 1, 1), on(urgent), 0);
  scheduler.settle_stream(urgent);
  int most = 0;  // on a busy machine many operations may arrive between two looks for marks
  for (int round = 0; round < 100 && most <= 4; ++round) {
    most = std::max(most, marks_of(client, stream, 20));
  }
  EXPECT_GT(most, 4);
}

TEST_F(Scheduling, RecordsOfEventsAreNotMarked) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  for (int i = 0; i < 20; ++i) submit(client, records(event_number(1), stream), i);
  scheduler.settle_stream(stream);
  EXPECT_EQ(issued_.count(), 20U);
  EXPECT_EQ(device_.begins, 0);
  EXPECT_EQ(device_.marks, 0);
}

// The driver would block the issuing thread.
TEST_F(Scheduling, AStreamWhoseLaunchQueueIsNearlyFullHoldsUpNoOther) {
  constexpr int launch_queue = 1020;
  constexpr int more_than_fits = 1500;
  Scheduler& scheduler = start({.capacity = 4096});
  Client& client = scheduler.create_client("ann", 0, 1);
  Client& other = scheduler.create_client("ben", 0, 1);
  const StreamState& stream = streams_.add();
  const StreamState& others = streams_.add();
  device_.is_stuck = true;
  for (int i = 0; i < more_than_fits; ++i) submit(client, records(event_number(1), stream), i);
  submit(other, on(others), more_than_fits);
  scheduler.settle_stream(others);
  EXPECT_LT(issued_.count(), static_cast<std::size_t>(launch_queue));
  device_.is_stuck = false;
  scheduler.settle_stream(stream);
  EXPECT_EQ(issued_.count(), static_cast<std::size_t>(more_than_fits) + 1);
}

// What the device has done long ago does not count as queued once the stream waits for the program.
TEST_F(Scheduling, TurnsThatHaveEndedLeaveRoomOnAStreamThatIsBlocked) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  for (int i = 0; i < 299; ++i) const Scheduler::Turn turn{scheduler, client, on(stream)};
  // Turns that come faster than the device is looked at are not all marked.
  const auto marked = static_cast<std::size_t>(device_.marks);
  ASSERT_TRUE(soon([&] { return device_.completed == marked; }));
  device_.is_stuck = true;
  for (int i = 0; i < 20; ++i) submit(client, on(stream), i);
  EXPECT_TRUE(soon([&] { return issued_.count() == 20; }));
  device_.is_stuck = false;
  scheduler.settle_stream(stream);
}

// Only the caller could be blocked by the driver, and it may be the one that the stream waits for.
TEST_F(Scheduling, TurnsOnAStreamThatIsBlockedAreTaken) {
  constexpr int calls = 1000;
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  device_.is_stuck = true;
  std::atomic<int> taken{0};
  std::thread caller{[&] {
    for (; taken < calls; ++taken) const Scheduler::Turn turn{scheduler, client, on(stream)};
  }};
  EXPECT_TRUE(soon([&] { return taken == calls; }));
  EXPECT_LT(device_.begins + device_.marks, 300) << "marks fill the launch queue too";
  device_.is_stuck = false;
  caller.join();
}

TEST_F(Scheduling, MarksTakeLittleOfTheQueueOfAStreamThatIsBlocked) {
  constexpr int of_each = 700;
  Scheduler& scheduler = start({.capacity = 4096});
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& blocked = streams_.add();
  const StreamState& other = streams_.add();
  device_.stuck_stream = blocked.id;
  for (int i = 0; i < of_each; ++i) {
    submit(client, on(blocked), i);
    submit(client, on(other), of_each + i);
  }
  EXPECT_TRUE(soon([&] { return issued_.count() == 2 * of_each; }));
  device_.stuck_stream = no_stream;
  EXPECT_TRUE(soon([&] { return device_.completed == 2 * of_each; }));
}

TEST_F(Scheduling, RecordsThatAreDoneLeaveRoomOnAStreamThatIsBlocked) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  for (int i = 0; i < 890; ++i) submit(client, records(event_number(1), stream), i);
  scheduler.settle_stream(stream);
  device_.is_stuck = true;
  submit(client, on(stream), 890);
  for (int i = 0; i < 200; ++i) submit(client, records(event_number(1), stream), 891 + i);
  EXPECT_TRUE(soon([&] { return issued_.count() == 891 + 200; }));
  device_.is_stuck = false;
  scheduler.settle_stream(stream);
}

// A mark behind the record would wait for every blocking stream, and so would any wait for the
// mark's stream.
TEST_F(Scheduling, AnOpenBatchIsMarkedBeforeARecordOnTheLegacyStream) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& other = streams_.add();
  const StreamState& blocking = streams_.add(StreamKind::Blocking);
  const StreamState& legacy = streams_.add(StreamKind::Legacy);
  device_.is_stuck = true;
  submit(client, on(other), 0);
  ASSERT_TRUE(soon([&] { return device_.marks == 1; }));
  Door door;
  submit(client, on(other), door);
  submit(client, on(blocking), 1);
  int marks_before_record = 0;
  scheduler.submit(client, records(event_number(1), legacy), [&] {
    marks_before_record = device_.marks;
    return CUDA_SUCCESS;
  });
  door.wait_until_reached();
  door.open();
  scheduler.settle_stream(legacy);
  EXPECT_EQ(marks_before_record, 3);
  device_.is_stuck = false;
}

// Each mark delays the work behind it.
TEST_F(Scheduling, FollowingBatchesOfAStreamNeedNoBegin) {
  Scheduler& scheduler =
      start({.policy = Schedule::Fair, .window = Duration{1'000'000}});  // for all at once
  const StreamState& one = streams_.add();
  const StreamState& two = streams_.add();
  Client& client = scheduler.create_client("ann", 0, 1);
  submit(client, on(one, 100'000), 1);  // from now on the duration of this kind is known
  ASSERT_TRUE(soon([&] { return client.figures().device_ns != 0; }));
  device_.is_stuck = true;
  // Each is a batch of its own, as none comes before the one before it has its mark.
  submit(scheduler.create_client("other", 0, 1), on(two, 1), 0);
  ASSERT_TRUE(soon([&] { return device_.marks == 2; }));
  for (int i = 2; i <= 3; ++i) {
    submit(client, on(one, 100'000), i);
    EXPECT_TRUE(soon([&] { return device_.marks == i + 1; }));
  }
  EXPECT_EQ(issued_.count(), 4U);
  EXPECT_EQ(device_.begins, 3);
  device_.is_stuck = false;
  scheduler.settle_all();
}

TEST_F(Scheduling, ReturnsBeforeTheDriverDoes) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  Door door;
  submit(client, on(stream), door);
  submit(client, on(stream), 1);
  door.wait_until_reached();
  EXPECT_EQ(issued_.count(), 0U);
  EXPECT_TRUE(scheduler.has_unissued(stream));
  door.open();
  scheduler.settle_stream(stream);
  EXPECT_FALSE(scheduler.has_unissued(stream));
  EXPECT_EQ(issued_.count(), 1U);
}

TEST_F(Scheduling, AFullLaneMakesSubmissionWait) {
  Scheduler& scheduler = start({.capacity = 8});
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  Door door;
  submit(client, on(stream), door);
  door.wait_until_reached();
  std::atomic<int> submitted{0};
  std::thread other{[&] {
    for (int i = 0; i < 20; ++i) {
      submit(client, on(stream), i);
      ++submitted;
    }
  }};
  EXPECT_TRUE(soon([&] { return submitted == 7; }));
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_EQ(submitted, 7);
  door.open();
  other.join();
  scheduler.settle_all();
  EXPECT_EQ(issued_.count(), 20U);
  EXPECT_GT(client.figures().waits_for_room, 0U);
}

TEST_F(Scheduling, AClientsEndDrainsItsLane) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  scheduler.bind_this_thread(&client);
  EXPECT_EQ(scheduler.client_of_this_thread(), &client);
  for (int i = 0; i < 50; ++i) submit(client, on(stream), i);
  scheduler.end_client(client);
  EXPECT_EQ(issued_.count(), 50U);
  EXPECT_EQ(scheduler.client_of_this_thread(), nullptr);
  EXPECT_EQ(scheduler.client(client.id()), nullptr);
  EXPECT_EQ(submit(client, on(stream), 99), Taken::No);
}

// Each call that waits for all lanes looks at every client.
TEST_F(Scheduling, EndedClientsAreNotLookedAt) {
  Scheduler& scheduler = start();
  const StreamState& stream = streams_.add();
  Client& stays = scheduler.create_client("stays", 0, 1);
  for (int i = 0; i < 10; ++i) {
    Client& ends = scheduler.create_client("ends", 0, 1);
    submit(ends, on(stream), i);
    scheduler.end_client(ends);
  }
  EXPECT_EQ(scheduler.clients(), std::vector<Client*>{&stays});
}

TEST_F(Scheduling, WorkOfDeadThreadsIsStillIssued) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  std::thread{[&] {
    scheduler.bind_this_thread(&client);
    for (int i = 0; i < 50; ++i) submit(*scheduler.client_of_this_thread(), on(stream), i);
  }}.join();
  scheduler.settle_all();
  EXPECT_EQ(issued_.count(), 50U);
}

TEST_F(Scheduling, StoppingLosesNothingAndStartingTakesAgain) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  std::atomic<bool> ends{false};
  std::atomic<int> taken{0};
  std::thread other{[&] {
    while (!ends) taken += submit(client, on(stream), 1) == Taken::Yes;
  }};
  for (int i = 0; i < 20; ++i) {
    scheduler.stop_accepting();
    EXPECT_FALSE(scheduler.has_unissued(stream));
    scheduler.accept();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  ends = true;
  other.join();
  scheduler.settle_all();
  EXPECT_EQ(issued_.count(), static_cast<std::size_t>(taken.load()));
}

TEST_F(Scheduling, ACallerWithATurnComesAfterQueuedWorkOfItsLane) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  for (int i = 0; i < 20; ++i) submit(client, on(stream), i);
  {
    const Scheduler::Turn turn{scheduler, client, on(stream)};
    EXPECT_EQ(issued_.count(), 20U);
  }
}

TEST_F(Scheduling, ACallerInTheDriverBlocksNobody) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  const Scheduler::Turn turn{scheduler, client, on(streams_.add())};
  submit(client, on(stream), 1);
  scheduler.settle_stream(stream);
  EXPECT_EQ(issued_.count(), 1U);
}

TEST_F(Scheduling, ClientsThatWaitForEachOthersEventsMakeProgress) {
  Scheduler& scheduler = start({.policy = Schedule::Priority});
  Client& low = scheduler.create_client("low", -5, 1);
  Client& high = scheduler.create_client("high", 5, 1);
  const StreamState& one = streams_.add();
  const StreamState& two = streams_.add();
  for (std::uintptr_t i = 0; i < 200; ++i) {
    submit(low, records(event_number(2 * i + 1), one), static_cast<int>(4 * i));
    submit(high, waits_for(event_number(2 * i + 1), two), static_cast<int>(4 * i + 1));
    submit(high, records(event_number(2 * i + 2), two), static_cast<int>(4 * i + 2));
    submit(low, waits_for(event_number(2 * i + 2), one), static_cast<int>(4 * i + 3));
  }
  scheduler.settle_all();
  const auto all = issued_.all();
  ASSERT_EQ(all.size(), 800U);
  for (int i = 0; i < 800; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

TEST_F(Scheduling, WorkInFlightMayWaitForQueuedWork) {
  Scheduler& scheduler = start({.policy = Schedule::Priority, .patience = Duration{2'000}});
  Client& low = scheduler.create_client("low", 0, 1);
  scheduler.create_client("high", 5, 1);
  Client& high = scheduler.create_client("higher", 6, 1);
  const StreamState& one = streams_.add();
  const StreamState& two = streams_.add();
  const StreamState& three = streams_.add();
  submit(high, on(three), 100);
  scheduler.settle_all();
  device_.is_stuck = true;  // until the last of these is issued
  submit(low, on(one, 1000), 1);
  submit(low, on(one, 1000), 2);
  submit(low, on(one, 1000), 3);
  submit(low, on(two, 1000), 4);
  EXPECT_TRUE(soon([&] { return issued_.place_of(4) < issued_.count(); }));
  device_.is_stuck = false;
  scheduler.settle_all();
}

// The device stands still meanwhile, for as long as a busy machine keeps this thread waiting: the
// lower client ages too little to go first, and none of its work is let through.
TEST_F(Scheduling, TheHigherClientDoesNotQueueBehindTheLower) {
  Scheduler& scheduler = start({.policy = Schedule::Priority, .patience = Duration{60'000'000}});
  Client& low = scheduler.create_client("low", 0, 1);
  Client& high = scheduler.create_client("high", 10'000, 1);
  const StreamState& one = streams_.add();
  const StreamState& two = streams_.add();
  submit(high, on(two, 1000), -1);
  constexpr std::uint64_t length = 500'000;
  submit(low, on(one, length), 0);  // from now on the duration of this kind is known
  ASSERT_TRUE(soon([&] { return low.figures().device_ns != 0; }));
  const std::size_t before = issued_.count();
  device_.is_stuck = true;
  for (int i = 1; i <= 100; ++i) submit(low, on(one, length), i);
  EXPECT_TRUE(soon([&] { return issued_.count() > before; }));
  submit(high, on(two, 1000), 1000);
  scheduler.settle_stream(two);
  EXPECT_LE(issued_.place_of(1000), before + 1) << "only what cannot be recalled comes before it";
  device_.is_stuck = false;
  scheduler.settle_all();
}

TEST_F(Scheduling, FairGivesDeviceTimeByWeight) {
  Scheduler& scheduler = start({.policy = Schedule::Fair, .capacity = 4096});
  Client& light = scheduler.create_client("light", 0, 1);
  Client& heavy = scheduler.create_client("heavy", 0, 3);
  const StreamState& one = streams_.add();
  const StreamState& two = streams_.add();
  // Both have work until the end, so that this thread may look late.
  for (int i = 0; i < 500; ++i) {
    submit(light, on(one, 200'000), 1);
    for (int times = 0; times < 6; ++times) submit(heavy, on(two, 100'000), 3);
  }
  EXPECT_TRUE(soon([&] { return heavy.figures().device_ns > 40'000'000; }));
  std::uint64_t of_light = 0;
  std::uint64_t of_heavy = 0;
  do {  // both at one moment
    of_light = light.figures().device_ns;
    of_heavy = heavy.figures().device_ns;
  } while (light.figures().device_ns != of_light);
  EXPECT_NEAR(static_cast<double>(of_heavy) / static_cast<double>(of_light), 3.0, 0.4);
  scheduler.settle_all();
}

TEST_F(Scheduling, ARefusalIsReportedOnceAtTheNextWait) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  scheduler.submit(client, on(stream), [] { return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; });
  scheduler.settle_stream(stream);
  EXPECT_EQ(scheduler.failures().take_of_stream(streams_.add().id), CUDA_SUCCESS);
  EXPECT_EQ(scheduler.failures().take_of_stream(stream.id), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(scheduler.failures().take_of_stream(stream.id), CUDA_SUCCESS);
}

TEST_F(Scheduling, AStickyRefusalIsThatOfTheStreamsContext) {
  Scheduler& scheduler = start();
  Client& client = scheduler.create_client("ann", 0, 1);
  Request request = on(streams_.add(StreamKind::NonBlocking, 2));
  request.context = context_number(1);
  scheduler.submit(client, request, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; });
  scheduler.settle_all();
  EXPECT_TRUE(scheduler.failures().is_any_context_lost());
  scheduler.context_ended(context_number(2));
  EXPECT_FALSE(scheduler.failures().is_any_context_lost());
}

// To the captured standard error.
bool is_anything_said() {
  struct stat captured {};
  return ::fstat(STDERR_FILENO, &captured) == 0 && captured.st_size != 0;
}

TEST_F(Scheduling, TheWatchdogNamesTheLaneThatWaits) {
  Scheduler& scheduler = start({.watchdog = Duration{20'000}});
  Client& client = scheduler.create_client("sleeper", 0, 1);
  const StreamState& stream = streams_.add();
  Door door;
  submit(client, on(stream), door);
  submit(client, on(stream), 1);
  door.wait_until_reached();
  testing::internal::CaptureStderr();
  detail::look_at_standard_error();
  std::thread opener{[&] {
    EXPECT_TRUE(soon(is_anything_said));
    door.open();
  }};
  scheduler.settle_stream(stream);
  opener.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("lane of client 'sleeper'"), std::string::npos) << said;
  EXPECT_NE(said.find("cuLaunchKernel"), std::string::npos) << said;
}

// Everything in the lane has waited for as long by then.
TEST_F(Scheduling, TheWatchdogReportsAStallOnce) {
  Scheduler& scheduler = start({.capacity = 4096, .watchdog = Duration{1'000'000}});
  Client& client = scheduler.create_client("ann", 0, 1);
  const StreamState& stream = streams_.add();
  testing::internal::CaptureStderr();
  detail::look_at_standard_error();
  device_.is_stuck = true;
  for (int i = 0; i < 2000; ++i) submit(client, on(stream, 100'000), i);
  EXPECT_TRUE(soon(is_anything_said));
  device_.is_stuck = false;
  EXPECT_TRUE(soon([&] { return issued_.count() == 2000; }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// The lane that waits for another device counts as waiting, so its issuing thread rests meanwhile.
TEST_F(Scheduling, TheWatchdogNamesTheLaneOfAnotherDevice) {
  Scheduler& scheduler = start({.watchdog = Duration{20'000}});
  Client& far = scheduler.create_client("far", 0, 1);
  Client& near = scheduler.create_client("near", 0, 1);
  const StreamState& there = streams_.add(StreamKind::NonBlocking, 2, 1);
  const StreamState& here = streams_.add(StreamKind::NonBlocking, 1, 0);
  const CUevent event = event_number(1);
  Door door;
  testing::internal::CaptureStderr();
  detail::look_at_standard_error();
  submit(far, on(there), door);
  submit(far, records(event, there), 1);
  submit(near, waits_for(event, here), 2);
  EXPECT_TRUE(soon(is_anything_said));
  door.open();
  scheduler.settle_all();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("lane of client 'near'"), std::string::npos) << said;
  EXPECT_NE(said.find("lane of client 'far', which is at another device"), std::string::npos);
}

TEST_F(Scheduling, ManyClientsOfManyThreads) {
  Scheduler& scheduler = start({.policy = Schedule::RoundRobin, .capacity = 32});
  constexpr int clients = 32;
  constexpr int each = 200;
  const StreamState& shared = streams_.add(StreamKind::Legacy);
  std::vector<const StreamState*> own;
  for (int i = 0; i < clients; ++i) own.push_back(&streams_.add(StreamKind::Blocking));
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      Client& client = scheduler.create_client("client", i % 3, 1 + i % 5);
      scheduler.bind_this_thread(&client);
      for (int n = 0; n < each; ++n) {
        submit(client, n % 50 == 49 ? on(shared) : on(*own[static_cast<std::size_t>(i)]),
               i * each + n);
      }
      scheduler.end_client(client);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto all = issued_.all();
  ASSERT_EQ(all.size(), static_cast<std::size_t>(clients * each));
  std::vector<int> last(clients, -1);
  for (int what : all) {
    EXPECT_GT(what % each, last[static_cast<std::size_t>(what / each)]);
    last[static_cast<std::size_t>(what / each)] = what % each;
  }
}

}  // namespace
}  // namespace cuvmm::test
