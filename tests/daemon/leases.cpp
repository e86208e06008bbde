// SPDX-License-Identifier: Apache-2.0
// A budget whose memory is leased, with a program and a service that a test scripts.
#include "daemon/leased_world.hpp"

#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "support/lowered_limit.hpp"
#include "support/named_connection.hpp"

namespace cuvmm::test {
namespace {

using node::PlaceUuid;

// Lets the process start one more thread.
class RoomForOneThread {
 public:
  RoomForOneThread() {
    ::pthread_getattr_default_np(&usual_);
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, stack);
    EXPECT_EQ(::pthread_setattr_default_np(&large), 0);
    ::pthread_attr_destroy(&large);
  }
  ~RoomForOneThread() { ::pthread_setattr_default_np(&usual_); }
  RoomForOneThread(const RoomForOneThread&) = delete;
  RoomForOneThread& operator=(const RoomForOneThread&) = delete;

 private:
  static constexpr Size stack = 1024 * MiB;

  static Size addresses_in_use() {
    Size pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    return pages * static_cast<Size>(::sysconf(_SC_PAGESIZE));
  }

  pthread_attr_t usual_{};
  const LoweredLimit limit_{RLIMIT_AS, addresses_in_use() + stack + stack / 2};
};

TEST(LeasedBudgets, AreNotLeasedWithoutAThreadThatAnswersDemands) {
  LeasedWorld world;
  {
    const RoomForOneThread room;
    world.leases.begin(world.budget, a_device, device_memory);
  }
  EXPECT_FALSE(world.service.is_called());
}

TEST(LeasedBudgets, LeaseABatchAndThenServeFromIt) {
  LeasedWorld world;
  world.begin();
  node::LeaseAsk ask;
  EXPECT_TRUE(world.commit(2 * MiB, [&] {
    ask = world.service.hear<node::LeaseAsk>();
    world.service.say(node::LeaseGrant{ask.request});
  }));
  EXPECT_EQ(ask.bytes, batch);
  EXPECT_TRUE(ask.at_once);
  EXPECT_EQ(ask.place, PlaceUuid{a_device});
  EXPECT_TRUE(world.commit(batch - 2 * MiB)) << "nobody answers";
  EXPECT_EQ(world.budget.surplus(), 0u);
}

TEST(LeasedBudgets, AskForTheExactNeedIfABatchIsRefused) {
  LeasedWorld world{false, SizeLimit::none(), std::chrono::seconds{20}};
  world.begin();
  EXPECT_TRUE(world.commit(2 * MiB, [&] {
    EXPECT_EQ(world.service.refuse_next(node::RefusalReason::NotAtOnce, 2 * MiB).bytes, batch);
    const auto exact = world.service.hear<node::LeaseAsk>();
    EXPECT_EQ(exact.bytes, 2 * MiB);
    world.service.say(node::LeaseGrant{exact.request});
  }));
  EXPECT_FALSE(world.commit(4 * MiB, [&] {
    world.service.refuse_next(node::RefusalReason::NotAtOnce);
    world.service.refuse_next(node::RefusalReason::NotAtOnce);
  }));
  EXPECT_EQ(world.budget.committed_bytes(), 2 * MiB);
}

TEST(LeasedBudgets, HearTheServiceUnderALimitOfNoDescriptors) {
  LeasedWorld world;
  world.begin(16 * MiB);
  const LoweredLimit none{RLIMIT_NOFILE, 0};
  for (const Size limit : {32 * MiB, 48 * MiB}) {  // the first ends a wait from before
    world.service.say(node::PlaceTerms{a_device, 0, limit});
    EXPECT_TRUE(comes_true([&] { return world.budget.limit() == limit; }));
  }
}

TEST(LeasedBudgets, ReadNothingFromAFileThatHasTheNumberOfTheirSocket) {
  LeasedWorld world;
  world.begin();
  const int number =
      named_connection([&](const std::string& path) { return path == world.service.path(); });
  ASSERT_GE(number, 0);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_EQ(::send(ends[1], "mine", 4, 0), 4);
  ASSERT_EQ(::dup2(ends[0], number), number);
  world.service.hang_up();  // wakes the thread
  EXPECT_TRUE(comes_true([&] { return world.service.is_called(); })) << "it connects anew";
  char taken[8];
  EXPECT_EQ(::recv(number, taken, sizeof taken, 0), 4);
  for (const int file : {ends[0], ends[1]}) ::close(file);
  ::syscall(SYS_close, number);  // ThreadSanitizer knows that the thread has looked at that file
}

TEST(LeasedBudgets, FollowTheServicesLimit) {
  LeasedWorld world;
  world.begin(16 * MiB);
  EXPECT_EQ(world.budget.limit(), 16 * MiB);
  EXPECT_FALSE(world.commit(17 * MiB)) << "without asking";
  world.service.say(node::PlaceTerms{a_device, 0, 32 * MiB});
  EXPECT_TRUE(comes_true([&] { return world.budget.limit() == 32 * MiB; }));
}

// Memory that the program takes natively counts, too, so a lease may have room beyond the limit.
TEST(LeasedBudgets, DoNotWaitForALeaseBeyondTheirLimit) {
  LeasedWorld world;
  world.begin(16 * MiB);
  world.budget.note_native(10 * MiB);
  world.budget.add_lease(batch);
  const std::uint64_t began = now_us();
  EXPECT_FALSE(wait_for_more(world.budget, 8 * MiB, 20'000));
  EXPECT_LT(now_us() - began, 10'000'000U);
  EXPECT_EQ(world.budget.surplus(), batch) << "it was no fault of the driver's";
}

TEST(LeasedBudgets, WaitForOthersOutsideTheirCallUntilTheDeadline) {
  LeasedWorld world;
  world.begin();
  bool leased = false;
  std::thread waits{[&] { leased = wait_for_more(world.budget, 4 * MiB, 20'000); }};
  world.service.refuse_next(node::RefusalReason::NotReturned);  // and the budget asks again
  const auto ask = world.service.hear<node::LeaseAsk>();
  EXPECT_FALSE(ask.at_once);
  world.service.say(node::LeaseGrant{ask.request});
  waits.join();
  EXPECT_TRUE(leased);
  EXPECT_EQ(world.tenant.outside, 1);
  EXPECT_FALSE(wait_for_more(world.budget, 8 * MiB, 50));
  const auto unanswered = world.service.hear<node::LeaseAsk>();
  EXPECT_EQ(world.service.hear<node::LeaseCancel>().request, unanswered.request);
  // A late grant is not lost: it counts as leased.
  world.service.say(node::LeaseGrant{unanswered.request});
  EXPECT_TRUE(comes_true([&] { return world.budget.surplus() == 8 * MiB; }));
}

node::LeaseRefusal refused_as_foreign(const node::LeaseAsk& ask) {
  return {.request = ask.request, .why = node::RefusalReason::BeyondCapacity, .foreign = GiB};
}

TEST(LeasedBudgets, WaitLongerForOtherClientsThanForForeignProcesses) {
  LeasedWorld world;
  world.begin();
  bool leased = false;
  std::thread waits{[&] { leased = wait_for_more(world.budget, 4 * MiB, 1, 20'000); }};
  const auto ask = world.service.hear<node::LeaseAsk>();
  ::usleep(20'000);  // past the first deadline
  world.service.say(node::LeaseGrant{ask.request});
  waits.join();
  EXPECT_TRUE(leased);
  std::atomic<bool> ended{false};
  std::uint64_t ended_at = 0;
  std::thread again{[&] {
    leased = wait_for_more(world.budget, 8 * MiB, 1, 20'000);
    ended_at = now_ns();
    ended.store(true);
  }};
  world.service.refuse_next(node::RefusalReason::NotReturned);  // and the budget asks again
  const std::uint64_t foreign_since = now_ns();
  world.service.answer_until(ended, refused_as_foreign);
  again.join();
  EXPECT_FALSE(leased);
  EXPECT_LT(ended_at - foreign_since, 10'000'000'000u);
}

// Until the service asks NVML again, it can take memory that changes hands for foreign. By then the
// request may have waited for its turn for longer than it waits for foreign processes.
TEST(LeasedBudgets, OutlastMemoryThatLooksForeignForAMoment) {
  LeasedWorld world;
  world.begin();
  bool leased = false;
  std::atomic<bool> ended{false};
  std::thread waits{[&] {
    leased = wait_for_more(world.budget, 4 * MiB, 1, 20'000);
    ended.store(true);
  }};
  const auto waited = world.service.hear<node::LeaseAsk>();
  ::usleep(20'000);  // past the first deadline
  world.service.say(refused_as_foreign(waited));
  const auto repeated = world.service.hear<node::LeaseAsk>();
  ::usleep(1'000'000);  // past the time for foreign memory, in which the request was possible
  world.service.say(refused_as_foreign(repeated));
  world.service.answer_until(
      ended, [](const node::LeaseAsk& ask) { return node::LeaseGrant{ask.request}; });
  waits.join();
  EXPECT_TRUE(leased);
}

TEST(LeasedBudgets, ReturnWhatTheyHaveToSpare) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
  world.give_back(64 * MiB);
  const auto returned = world.service.hear<node::LeaseReturn>();
  EXPECT_EQ(returned.bytes, 64 * MiB - batch);
  EXPECT_EQ(world.budget.surplus(), batch);
}

// Nobody may ask for what is guaranteed to it.
TEST(LeasedBudgets, ReturnEverythingToSpareWhileTheirProgramIsIdle) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(2 * MiB, [&] { world.service.grant_next(); }));
  world.give_back(2 * MiB);
  world.tenant.idle = true;
  EXPECT_EQ(world.service.hear<node::LeaseReturn>().bytes, batch);
  EXPECT_EQ(world.budget.surplus(), 0u);
}

TEST(LeasedBudgets, ReturnAtOnceWhatTheyMayNotKeepAsACache) {
  std::uint64_t took = an_hour.count();
  for (int i = 0; i < 5 && took >= 900'000; ++i) {  // a busy machine may be late once
    LeasedWorld world{false, SizeLimit::of_bytes(0)};
    world.begin();
    ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
    const std::uint64_t began = now_us();
    world.give_back(64 * MiB);
    EXPECT_EQ(world.service.hear<node::LeaseReturn>().bytes, 64 * MiB);
    took = now_us() - began;
  }
  EXPECT_LT(took, 900'000u) << "others return it after a second";
}

TEST(LeasedBudgets, ReleaseTheirCacheWhenAsked) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
  world.tenant.cache = 32 * MiB;
  world.service.say(
      node::ReclaimDemand{9, a_device, node::ReclaimStep::Cache, 16 * MiB, 20'000'000});
  const auto answer = world.service.hear<node::ReclaimAnswer>();
  EXPECT_EQ(answer.revision, 9u);
  EXPECT_EQ(answer.outcome, node::ReclaimOutcome::Applied);
  EXPECT_EQ(answer.returned, 16 * MiB);
  EXPECT_EQ(world.tenant.frees, 1);
  world.service.say(node::ReclaimDemand{10, a_device, node::ReclaimStep::Cache, GiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 16 * MiB) << "all it had";
}

// Otherwise the service would pause a program that has plenty of free memory.
TEST(LeasedBudgets, ReleaseMoreOfTheirCacheForWhatTheProgramTakesMeanwhile) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
  world.tenant.cache = 32 * MiB;
  world.tenant.takes_meanwhile = 2 * MiB;
  world.service.say(
      node::ReclaimDemand{9, a_device, node::ReclaimStep::Cache, 16 * MiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 16 * MiB);
  EXPECT_EQ(world.tenant.frees, 2);
}

TEST(LeasedBudgets, MoveColdMemoryOnlyBeyondTheirCacheAndWhenAskedForIt) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
  world.tenant.cache = 8 * MiB;
  world.tenant.cold_memory = 40 * MiB;
  node::UseReport use;
  while (use.cold == 0 || use.cache == 0) use = world.service.hear<node::UseReport>();
  EXPECT_EQ(use.cold, 40 * MiB);
  EXPECT_EQ(use.cache, 8 * MiB);
  world.service.say(node::ReclaimDemand{1, a_device, node::ReclaimStep::Cold, 8 * MiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 8 * MiB);
  EXPECT_EQ(world.tenant.moves, 0) << "the cache is enough";
  world.service.say(
      node::ReclaimDemand{2, a_device, node::ReclaimStep::Cache, 8 * MiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 0u);
  EXPECT_EQ(world.tenant.moves, 0);
  world.service.say(
      node::ReclaimDemand{3, a_device, node::ReclaimStep::Cold, 30 * MiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 30 * MiB);
  EXPECT_EQ(world.tenant.moves, 1);
}

TEST(LeasedBudgets, OfTheHostAreLeasedToo) {
  LeasedWorld world{true};  // so that a slow answer counts as a refusal too
  world.begin();
  auto& host = immortal<LeasedBudget>();
  world.leases.begin(host, Lessor::the_host, device_memory);
  auto place = world.service.hear<node::HeldAlready>();
  if (place.place == PlaceUuid{a_device}) place = world.service.hear<node::HeldAlready>();
  EXPECT_EQ(place.place, PlaceUuid{});
  EXPECT_EQ(place.guarantee, 0u);
  bool is_leased = true;
  std::thread asks{[&] { is_leased = host.commit(64 * MiB).ok(); }};
  const auto ask = world.service.hear<node::LeaseAsk>();
  EXPECT_EQ(ask.place, PlaceUuid{});
  world.service.say(
      node::LeaseRefusal{.request = ask.request, .why = node::RefusalReason::BeyondCapacity});
  asks.join();
  EXPECT_FALSE(is_leased);
  EXPECT_EQ(host.committed_bytes(), 0u);
}

TEST(LeasedBudgets, AreEmptyInAPauseAndComeBackForAHeldCall) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
  world.tenant.held = world.tenant.comes_back = 64 * MiB;
  world.service.say(
      node::ReclaimDemand{3, a_device, node::ReclaimStep::Pause, 64 * MiB, 20'000'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().returned, 64 * MiB);
  EXPECT_EQ(world.budget.committed_bytes(), 0u);
  world.tenant.held_calls = true;
  const auto first = world.service.refuse_next(node::RefusalReason::NotReturned);
  EXPECT_EQ(first.bytes, 64 * MiB);
  EXPECT_FALSE(first.at_once);
  EXPECT_TRUE(world.tenant.is_paused());
  world.service.grant_next();  // the budget asks again
  EXPECT_TRUE(comes_true([&] { return world.tenant.resumes == 1; }));
  EXPECT_EQ(world.budget.committed_bytes(), 64 * MiB);
}

TEST(LeasedBudgets, AProgramThatHasShutDownItsDriverIsNotResumedAgain) {
  LeasedWorld world;
  world.begin();
  world.tenant.has_shut_down = true;
  world.service.say(node::ReclaimDemand{3, a_device, node::ReclaimStep::Pause, MiB, 20'000'000});
  world.service.hear<node::ReclaimAnswer>();
  world.tenant.held_calls = true;
  EXPECT_TRUE(comes_true([&] { return world.tenant.resumes == 1; }));
  ::usleep(50'000);  // it would be tried again every 5 ms
  EXPECT_EQ(world.tenant.resumes, 1);
}

// Returns the answers to a demand to pause while work does not end: the last one is a refusal.
std::vector<node::ReclaimOutcome> answers_of_a_busy_client(std::uint64_t work_within,
                                                           std::uint64_t within,
                                                           std::uint64_t& took) {
  LeasedWorld world;
  world.begin();
  world.tenant.busy = true;
  world.service.hear<node::UseReport>();
  const std::uint64_t began = now_us();
  world.service.say(node::WorkDeadline{4, work_within});
  world.service.say(node::ReclaimDemand{4, a_device, node::ReclaimStep::Pause, MiB, within});
  std::vector<node::ReclaimOutcome> answers;
  do {
    answers.push_back(world.service.hear<node::ReclaimAnswer>().outcome);
  } while (answers.back() == node::ReclaimOutcome::Deferred);
  took = now_us() - began;
  return answers;
}

TEST(LeasedBudgets, WaitForTheirWorkAsLongAsTheServiceSays) {
  std::uint64_t took = 0;
  EXPECT_EQ(answers_of_a_busy_client(150'000, 60'000'000, took),
            std::vector{node::ReclaimOutcome::Refused});
  EXPECT_GE(took, 150'000u);
  EXPECT_LT(took, 20'000'000u) << "half of the time for the whole pause is 30 s";
  const std::vector twice{node::ReclaimOutcome::Deferred, node::ReclaimOutcome::Refused};
  EXPECT_EQ(answers_of_a_busy_client(500'000, 200'000, took), twice);
  EXPECT_GE(took, 500'000u) << "the time for the whole pause, which it asks to extend, is 200 ms";
}

// As with a service that gives no deadline.
TEST(LeasedBudgets, WorkThatDoesNotEndIsReportedAndThePauseRefused) {
  LeasedWorld world;
  world.begin();
  world.tenant.busy = true;
  world.service.hear<node::UseReport>();
  world.service.say(node::ReclaimDemand{4, a_device, node::ReclaimStep::Pause, MiB, 200'000});
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().outcome, node::ReclaimOutcome::Deferred);
  world.service.hear<node::OutlastedTurn>();
  EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().outcome, node::ReclaimOutcome::Refused);
  EXPECT_EQ(world.tenant.pauses, 2);
  world.service.hear<node::UseReport>();  // nothing has changed, but it may be asked again
}

// Of a client with memory on several devices.
TEST(LeasedBudgets, RefuseAllPausesOnceWorkHasOutlastedTheFirst) {
  LeasedWorld world;
  world.begin();
  world.tenant.busy = true;
  world.service.hear<node::UseReport>();
  for (const node::Revision revision : {4, 5}) {
    world.service.say(node::WorkDeadline{revision, 1'000'000});
    world.service.say(
        node::ReclaimDemand{revision, a_device, node::ReclaimStep::Pause, MiB, 20'000'000});
  }
  for (const node::Revision revision : {4, 5}) {
    const auto answer = world.service.hear<node::ReclaimAnswer>();
    EXPECT_EQ(answer.revision, revision);
    EXPECT_EQ(answer.outcome, node::ReclaimOutcome::Refused);
  }
  EXPECT_EQ(world.tenant.pauses, 1);
}

TEST(LeasedBudgets, AreExactWhileThreadsCommitAndTheServiceComesAndGoes) {
  LeasedWorld world;
  world.begin();
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!ends.load()) {
        if (world.commit(2 * MiB)) world.give_back(2 * MiB);
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    world.service.serve_for(50);
    world.service.hang_up();
    world.service.accept();
    world.service.greet();
  }
  world.service.hang_up();
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(world.budget.committed_bytes(), 0u);
  EXPECT_EQ(world.budget.lease_what_is_held(), 0u) << "all that was granted is to spare";
}

}  // namespace
}  // namespace cuvmm::test
