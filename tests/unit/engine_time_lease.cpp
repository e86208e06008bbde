// SPDX-License-Identifier: Apache-2.0
// How launches wait for a time grant, and yield to processes of higher priority, whose boards this
// process reads.
#include "engine/time_lease.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "driver/current_context.hpp"
#include "engine/yielding.hpp"
#include "support/time_board.hpp"
#include "trace/writer.hpp"
#include "unit/trace_world.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

using node::TimeGrant;

// What the lease refers to. Its thread may look at the boards after a test.
struct TimeSharedProgram {
  TimeSharedProgram(const Driver& driver, const CUuuid& device)
      : mine(device), above(device), lease({driver, watch, calls, captures, legacy}) {
    EXPECT_TRUE(grants.take(mine.file()));
    grants.take_foreground(slot, above.file());
    hold();
    lease.begin(leases, grants);
  }
  ~TimeSharedProgram() = default;
  TimeSharedProgram(const TimeSharedProgram&) = delete;
  TimeSharedProgram& operator=(const TimeSharedProgram&) = delete;

  // The process holds the device, by a new grant.
  void hold() { mine.decide(TimeGrant::Held); }
  void revoke() { mine.decide(TimeGrant::None); }

  static constexpr std::uint32_t slot = 3;
  BoardFile mine;
  BoardFile above;
  NoTenant tenant;
  lease::Leases leases{lease::LeaseSettings{}, tenant};
  lease::Grants grants;
  Watch watch;
  CallBarrier calls{CallBarrier::Of::Calls};
  Captures captures;
  LegacyBarrier legacy;
  TimeLease lease;
};

class TimeLeaseTest : public VmmTest {
 protected:
  void SetUp() override {
    VmmTest::SetUp();
    CUuuid uuid{};
    ASSERT_CUDA(driver().cuDeviceGetUuid(&uuid, 0));
    static auto* const all = new std::vector<std::unique_ptr<TimeSharedProgram>>;  // never freed
    program_ = all->emplace_back(std::make_unique<TimeSharedProgram>(driver(), uuid)).get();
    while (!program_->lease.counts()) ::usleep(100);
  }
  void TearDown() override {
    program_->lease.shut_down();
    VmmTest::TearDown();
  }

  // How long a launch waits for others at least, each time with a new grant.
  std::uint64_t shortest_wait() {
    std::uint64_t shortest = ~std::uint64_t{0};
    for (int i = 0; i < 100; ++i) {
      program_->hold();
      shortest = std::min(shortest, wait_of_a_launch());
    }
    return shortest;
  }
  std::uint64_t wait_of_a_launch() {
    const std::uint64_t began = now_ns();
    EXPECT_EQ(program_->watch.before({Call::cuLaunchKernel, Effect::Submits}), CUDA_SUCCESS);
    return now_ns() - began;
  }

  TimeSharedProgram* program_ = nullptr;
};

TEST_F(TimeLeaseTest, EachGrantYieldsForAShortTimeToTheForeground) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.words().wants.store(1);
  EXPECT_GE(shortest_wait(), Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, TheForegroundIsHeededNoLongerInTheSameGrant) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.words().wants.store(1);
  wait_of_a_launch();
  std::uint64_t shortest = ~std::uint64_t{0};
  for (int i = 0; i < 100; ++i) shortest = std::min(shortest, wait_of_a_launch());
  EXPECT_LT(shortest, Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, DoesNotWaitForAForegroundWithoutWork) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
}

TEST_F(TimeLeaseTest, DoesNotWaitForBoardsThatTheServiceDoesNotName) {
  program_->above.words().wants.store(1);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
  program_->mine.words().yields_to.store(1U << (TimeSharedProgram::slot + 1));
  EXPECT_LT(shortest_wait(), Yielding::longest_ns) << "that board has never come";
}

TEST_F(TimeLeaseTest, DoesNotWaitForWorkOnAnotherDevice) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.board().devices[0].wants.store(1);
  EXPECT_LT(shortest_wait(), Yielding::longest_ns);
}

// A stream whose host function does not end before let_end(). Its context becomes current and ends
// with it, and so do the lease's events.
class StuckStream {
 public:
  StuckStream(const Driver& driver, TimeLease& lease) : driver_(driver), lease_(lease) {
    EXPECT_CUDA(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    EXPECT_CUDA(driver.cuStreamCreate(&beside_, CU_STREAM_NON_BLOCKING));
    const auto stuck = [](void* may_end) {
      while (!static_cast<std::atomic<bool>*>(may_end)->load()) ::usleep(100);
    };
    EXPECT_CUDA(driver.cuLaunchHostFunc(stream_, stuck, &may_end_));
  }
  ~StuckStream() {
    let_end();
    EXPECT_CUDA(driver_.cuStreamSynchronize(stream_));
    TimeLease::Ending ending{lease_, context_.get()};
    EXPECT_CUDA(context_.destroy());
    ending.is_over();
  }
  StuckStream(const StuckStream&) = delete;
  StuckStream& operator=(const StuckStream&) = delete;

  void let_end() { may_end_ = true; }
  StreamName name() const { return {.handle = stream_, .null_is_per_thread = false}; }
  // Another stream of the context, which is free.
  StreamName beside() const { return {.handle = beside_, .null_is_per_thread = false}; }

 private:
  const Driver& driver_;
  TimeLease& lease_;
  OwnContext context_;
  CUstream stream_ = nullptr;
  CUstream beside_ = nullptr;
  std::atomic<bool> may_end_{false};
};

// Work on a stream that a host function holds.
class TimeLeaseBehindAHostFunction : public TimeLeaseTest {
 protected:
  static constexpr std::uint64_t kind = 7;

  // The lease takes this kind for work of a few microseconds at most, which needs no mark of its
  // own.
  void teach(StreamName stream) {
    for (int i = 0; i < 100; ++i) {
      program_->lease.submitted(Call::cuLaunchKernel, stream, kind);
      EXPECT_CUDA(driver().cuStreamSynchronize(stream.handle));
      program_->lease.forget_ended_work();
    }
  }
  bool drains_within(std::uint64_t ns) {
    const std::uint64_t until = now_ns() + ns;
    while (!program_->mine.is_drained() && now_ns() < until) ::usleep(500);
    return program_->mine.is_drained();
  }
};

TEST_F(TimeLeaseBehindAHostFunction, IsInFlightUntilItHasEnded) {
  StuckStream stream{driver(), program_->lease};
  teach(stream.beside());
  program_->lease.may_hold(stream.name());
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  program_->revoke();
  EXPECT_FALSE(drains_within(50'000'000)) << "another process would get the grant";
  stream.let_end();
  EXPECT_TRUE(drains_within(20'000'000'000));
}

TEST_F(TimeLeaseBehindAHostFunction, IsNotTakenForLongWorkFromThenOn) {
  StuckStream stream{driver(), program_->lease};
  program_->mine.words().window.store(10'000);
  teach(stream.beside());
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind + 1);
  const auto sleep = [](void* /*data*/) { ::usleep(30'000); };
  EXPECT_CUDA(driver().cuLaunchHostFunc(stream.name().handle, sleep, nullptr));
  program_->lease.may_hold(stream.name());
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  stream.let_end();
  EXPECT_CUDA(driver().cuStreamSynchronize(stream.name().handle));
  program_->lease.forget_ended_work();
  program_->lease.submitted(Call::cuLaunchKernel, stream.beside(), kind);
  EXPECT_LT(program_->mine.words().in_flight_until_ns.load(), now_ns() + 5'000'000);
}

TEST_F(TimeLeaseBehindAHostFunction, DoesNotCountIfThereIsNone) {
  const StuckStream stream{driver(), program_->lease};
  program_->lease.may_hold(stream.name());
  program_->revoke();
  EXPECT_TRUE(drains_within(20'000'000'000)) << "the device is free";
}

// The lease's mark belongs to the stream's context too.
TEST_F(TimeLeaseBehindAHostFunction, IsInFlightThoughAnotherContextIsCurrent) {
  const CUcontext other = current_context(driver());
  StuckStream stream{driver(), program_->lease};
  teach(stream.beside());
  {
    const InContext elsewhere{driver(), other};
    program_->lease.may_hold(stream.name());
    program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  }
  program_->revoke();
  EXPECT_FALSE(drains_within(50'000'000)) << "another process would get the grant";
  stream.let_end();
  EXPECT_TRUE(drains_within(20'000'000'000));
}

// What a program needs to use more streams than the lease follows.
std::vector<StreamName> many_streams(const Driver& driver) {
  std::vector<StreamName> streams(20);
  for (StreamName& stream : streams) {
    EXPECT_CUDA(driver.cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING));
  }
  return streams;
}

TEST_F(TimeLeaseBehindAHostFunction, IsInFlightInAProgramWithManyStreamsToo) {
  StuckStream stream{driver(), program_->lease};
  teach(stream.beside());
  program_->lease.may_hold(stream.name());
  for (const StreamName other : many_streams(driver())) {
    program_->lease.submitted(Call::cuLaunchKernel, other, kind);
  }
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  program_->revoke();
  EXPECT_FALSE(drains_within(50'000'000)) << "another process would get the grant";
  stream.let_end();
  EXPECT_TRUE(drains_within(20'000'000'000));
}

TEST_F(TimeLeaseBehindAHostFunction, NeedsFewEventsForManyStreams) {
  NEEDS_SIMULATED_DRIVER();
  StuckStream here{driver(), program_->lease};
  const std::vector<StreamName> streams = many_streams(driver());
  const std::uint64_t before = sim()->calls("cuEventCreate");
  for (int round = 0; round < 10; ++round) {
    for (const StreamName stream : streams) {
      program_->lease.may_hold(stream);
      program_->lease.submitted(Call::cuLaunchKernel, stream, kind);
    }
    for (const StreamName stream : streams)
      EXPECT_CUDA(driver().cuStreamSynchronize(stream.handle));
    program_->lease.forget_ended_work();
  }
  EXPECT_LE(sim()->calls("cuEventCreate") - before, 3 * streams.size());
}

// The driver waits for the work, and only then ends the context.
TEST_F(TimeLeaseBehindAHostFunction, IsInFlightWhileItsContextEnds) {
  StuckStream stream{driver(), program_->lease};
  program_->lease.may_hold(stream.name());
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  {
    const TimeLease::Ending ending{program_->lease, current_context(driver())};
    program_->revoke();
    EXPECT_FALSE(drains_within(50'000'000)) << "another process would get the grant";
  }
  EXPECT_FALSE(program_->mine.is_drained()) << "the context has stayed";
  stream.let_end();
  EXPECT_TRUE(drains_within(20'000'000'000));
}

TEST_F(TimeLeaseBehindAHostFunction, IsForgottenWithItsContext) {
  program_->mine.words().window.store(10'000);
  {
    StuckStream stream{driver(), program_->lease};
    teach(stream.beside());
    for (std::uint64_t i = 1; i <= 100; ++i) {
      program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind + i);
    }
  }
  const StuckStream other{driver(), program_->lease};
  for (std::uint64_t i = 0; i < 2; ++i) {
    program_->lease.may_hold(other.name());
    program_->lease.submitted(Call::cuLaunchKernel, other.name(), kind);
  }
  EXPECT_LT(std::min(wait_of_a_launch(), wait_of_a_launch()), 4'000'000u) << "the window has room";
}

// The host function may wait for the very launch that waits for room.
TEST_F(TimeLeaseBehindAHostFunction, DoesNotKeepLaunchesWaitingForever) {
  StuckStream stream{driver(), program_->lease};
  program_->mine.words().window.store(1);
  program_->hold();
  program_->lease.may_hold(stream.name());
  program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  const std::uint64_t waited = wait_of_a_launch();
  EXPECT_GT(waited, 4'000'000u);
  EXPECT_LT(waited, 60'000'000'000u);
}

// How much of its own work a launch waits for, in a window in which one operation more may queue.
class TimeLeaseBehindOneOperation : public TimeLeaseBehindAHostFunction {
 protected:
  void SetUp() override {
    TimeLeaseBehindAHostFunction::SetUp();
    program_->mine.words().window.store(1'000);
  }

  // The lease takes this kind for work of about that time.
  void teach_time(StreamName stream, unsigned microseconds) {
    sleep_for_ = microseconds;
    const auto sleep = [](void* time) { ::usleep(*static_cast<unsigned*>(time)); };
    EXPECT_CUDA(driver().cuLaunchHostFunc(stream.handle, sleep, &sleep_for_));
    program_->lease.submitted(Call::cuLaunchKernel, stream, kind);
    EXPECT_CUDA(driver().cuStreamSynchronize(stream.handle));
    program_->lease.forget_ended_work();
  }
  // How long a launch waits while an operation of that kind is in flight.
  std::uint64_t wait_behind(const StuckStream& stream) {
    program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
    return wait_of_a_launch();
  }

 private:
  unsigned sleep_for_ = 0;
};

TEST_F(TimeLeaseBehindOneOperation, QueuesASecondSoThatTheDeviceHasNoGap) {
  constexpr int tries = 20;  // a busy machine may make any one time seem long
  StuckStream stream{driver(), program_->lease};
  for (int i = 0; i < tries; ++i) teach_time(stream.beside(), 2'000);
  std::uint64_t shortest = wait_behind(stream);
  for (int i = 0; i < tries && shortest >= 4'000'000; ++i) {
    // Work that ends resets how many launches a long wait lets through, which else would double.
    teach_time(stream.beside(), 2'000);
    shortest = std::min(shortest, wait_of_a_launch());
  }
  EXPECT_LT(shortest, 4'000'000u);
}

TEST_F(TimeLeaseBehindOneOperation, QueuesNoSecondIfBothCouldOutlastTheQuantum) {
  StuckStream stream{driver(), program_->lease};
  teach_time(stream.beside(), 60'000);
  EXPECT_GT(wait_behind(stream), 60'000'000u) << "until something in flight might wait for it";
}

TEST_F(TimeLeaseBehindOneOperation, QueuesNoSecondBeforeAnyTimeIsKnown) {
  StuckStream stream{driver(), program_->lease};
  EXPECT_GT(wait_behind(stream), 4'000'000u);
}

// After five seconds without a grant, a process launches natively.
TEST_F(TimeLeaseTest, WaitsLongerThanUsualForTimeUnderItsCap) {
  program_->mine.board().is_over_cap.store(1);
  program_->revoke();
  std::thread service{[&] {
    while (program_->mine.words().wants.load() == 0) ::usleep(100);  // until it waits
    ::usleep(6'000'000);
    program_->hold();
  }};
  EXPECT_GE(wait_of_a_launch(), 6'000'000'000u);
  service.join();
}

class TimeLeaseTrace : public TimeLeaseTest {
 protected:
  // The waits for a time grant that the trace has of `run`.
  template <class Run>
  std::vector<TraceRecord> waits_during(Run&& run) {
    const std::string path = folder_.in("t" + std::to_string(++traces_));
    auto writer = TraceWriter::start({.file = path});
    EXPECT_TRUE(writer.ok());
    run();
    EXPECT_TRUE((*writer)->finish(in_time));
    std::vector<TraceRecord> waits = records_of(path);
    std::erase_if(waits,
                  [](const TraceRecord& one) { return one.event != TraceEvent::TimeGrantWait; });
    return waits;
  }

 private:
  OwnFolder folder_;
  int traces_ = 0;
};

TEST_F(TimeLeaseTrace, HasTheWaitForAGrantWithItsCallAndItsTime) {
  program_->revoke();
  std::uint64_t took = 0;
  const auto waits = waits_during([&] {
    std::thread service{[&] {
      while (program_->mine.words().wants.load() == 0) ::usleep(100);  // until it waits
      ::usleep(30'000);
      program_->hold();
    }};
    took = wait_of_a_launch();
    service.join();
  });
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].device, 0);
  EXPECT_EQ(waits[0].call, static_cast<std::uint16_t>(Call::cuLaunchKernel));
  EXPECT_GT(waits[0].other, 20'000'000u);
  EXPECT_LE(waits[0].other, took);
}

TEST_F(TimeLeaseTrace, HasTheWaitForTheForeground) {
  program_->mine.words().yields_to.store(1U << TimeSharedProgram::slot);
  program_->above.words().wants.store(1);
  constexpr std::uint64_t least = Yielding::longest_ns / 2;
  std::vector<TraceRecord> waits;
  // A busy machine may hold up the launch until there is little or nothing left to wait for.
  for (int tries = 0; tries < 10 && (waits.empty() || waits[0].other < least); ++tries) {
    waits = waits_during([&] {
      program_->hold();
      wait_of_a_launch();
    });
  }
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_GE(waits[0].other, least);
}

TEST_F(TimeLeaseTrace, LeavesOutTheWaitForRoomAfterTheGrant) {
  StuckStream stream{driver(), program_->lease};
  program_->mine.words().window.store(1'000'000);
  for (std::uint64_t kind : {1, 2}) {  // unknown work fills the window
    program_->lease.submitted(Call::cuLaunchKernel, stream.name(), kind);
  }
  program_->revoke();
  std::uint64_t took = 0;
  std::atomic<bool> asks{false};
  const auto waits = waits_during([&] {
    std::thread service{[&] {
      while (!asks) ::usleep(100);
      ::usleep(50'000);
      program_->hold();
      ::usleep(1'000'000);  // much longer than the wait before, on a busy machine too
      stream.let_end();
    }};
    asks = true;
    took = wait_of_a_launch();
    service.join();
  });
  EXPECT_GT(took, 1'000'000'000u);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_LT(waits[0].other, 800'000'000u);
}

TEST_F(TimeLeaseTrace, HasNoWaitOfAProcessWithAGrant) {
  const StuckStream stream{driver(), program_->lease};
  program_->mine.words().window.store(1);
  std::uint64_t waited = 0;
  const auto waits = waits_during([&] {
    program_->hold();
    program_->lease.submitted(Call::cuLaunchKernel, stream.name(), 1);
    waited = wait_of_a_launch();  // for what it has in flight
  });
  EXPECT_GT(waited, 4'000'000u);
  EXPECT_TRUE(waits.empty());
}

}  // namespace
}  // namespace cuvmm::test
