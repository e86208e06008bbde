// SPDX-License-Identifier: Apache-2.0
// Leases from a service that is slow, silent or away, and comes back.
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "daemon/leased_world.hpp"

namespace cuvmm::test {
namespace {

// Begins with a service that will answer, whose limit the program must see from then on.
std::thread begin_with_limit(LeasedWorld& world, Size limit) {
  return std::thread{[&world, limit] {
    world.leases.begin(world.budget, a_device, device_memory);
    EXPECT_EQ(world.budget.limit(), limit);
  }};
}

TEST(LeasedBudgets, KnowTheLimitOfARequiredServiceFromTheStart) {
  LeasedWorld world{true};
  std::thread begins = begin_with_limit(world, 16 * MiB);
  world.service.accept();
  std::this_thread::sleep_for(std::chrono::milliseconds{600});  // the machine is busy
  world.service.greet(16 * MiB);
  begins.join();
}

TEST(LeasedBudgets, KnowTheLimitOfARequiredServiceThatRefusesTheirGuarantee) {
  LeasedWorld world{true};
  std::thread begins = begin_with_limit(world, 16 * MiB);
  world.service.accept();
  world.service.hear<node::Greeting>();
  world.service.say(
      node::Rejected{.why = node::Rejection::GuaranteesDoNotFit, .text = "there is less"});
  world.service.hang_up();
  world.service.accept();
  std::this_thread::sleep_for(std::chrono::milliseconds{600});  // the machine is busy
  world.service.greet(16 * MiB);
  begins.join();
}

TEST(LeasedBudgets, WaitOnlyOnceForARequiredServiceThatIsSilent) {
  LeasedWorld world{true};
  world.leases.begin(world.budget, a_device, device_memory);
  auto& second = immortal<LeasedBudget>();
  const std::uint64_t began = now_us();
  world.leases.begin(second, Lessor::Uuid{7}, device_memory);
  EXPECT_LT(now_us() - began, 5'000'000u);
}

TEST(LeasedBudgets, DoNotWaitLongForARequiredServiceThatIsNotThere) {
  auto& tenant = immortal<WillingTenant>();
  auto& budget = immortal<LeasedBudget>();
  auto& leases = immortal<lease::Leases>(
      LeaseSettings{.sockets = {test_folder() / "nobody"}, .is_required = true}, tenant);
  const std::uint64_t began = now_us();
  leases.begin(budget, a_device, device_memory);
  EXPECT_LT(now_us() - began, 5'000'000u);
  EXPECT_FALSE(budget.commit(2 * MiB).ok());
}

TEST(LeasedBudgets, ProceedWithoutAServiceThatDoesNotAnswer) {
  LeasedWorld world;
  world.begin();
  EXPECT_TRUE(world.commit(2 * MiB)) << "the driver decides";
  EXPECT_TRUE(world.commit(2 * MiB));
  world.service.hear<node::LeaseAsk>();
  LeasedWorld strict{true};
  strict.begin();
  EXPECT_FALSE(strict.commit(2 * MiB));
}

TEST(LeasedBudgets, ReportWhatTheyTookWhileTheServiceWasSilent) {
  LeasedWorld world;
  world.begin();
  EXPECT_TRUE(world.commit(6 * MiB)) << "the driver decides";
  EXPECT_EQ(world.budget.deficit(), 6 * MiB);
  const auto unanswered = world.service.hear<node::LeaseAsk>();
  world.service.say(node::LeaseRefusal{.request = unanswered.request});
  world.service.accept();
  world.service.greet();
  ASSERT_EQ(world.service.held().size(), 1u);
  EXPECT_EQ(world.service.held()[0].bytes, 6 * MiB);
  EXPECT_EQ(world.budget.deficit(), 0u);
}

TEST(LeasedBudgets, AskForWhatTheyHoldWithoutALeaseToo) {
  LeasedWorld world;
  std::thread begins{[&] { world.leases.begin(world.budget, a_device, device_memory); }};
  world.service.accept();
  world.service.hear<node::HeldAlready>();
  world.service.say(node::Accepted{});  // no terms, so it does not reconnect to report
  begins.join();
  EXPECT_TRUE(world.commit(2 * batch)) << "the driver decides";
  const auto unanswered = world.service.hear<node::LeaseAsk>();
  std::thread waits{[&] { EXPECT_TRUE(wait_for_more(world.budget, 4 * MiB, 20'000)); }};
  world.service.say(node::LeaseRefusal{.request = unanswered.request});
  const auto ask = world.service.hear<node::LeaseAsk>();
  EXPECT_EQ(ask.bytes, 2 * batch + 4 * MiB);
  world.service.say(node::LeaseGrant{ask.request});
  waits.join();
}

TEST(LeasedBudgets, WaitOnlyOnceForAServiceThatDoesNotAcceptThem) {
  LeasedWorld world;
  std::thread begins{[&] { world.leases.begin(world.budget, a_device, device_memory); }};
  world.service.accept();
  world.service.hear<node::HeldAlready>();
  begins.join();
  const std::uint64_t began = now_us();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(world.commit(2 * MiB)) << "the driver decides";
  EXPECT_LT(now_us() - began, 5'000'000u) << "a quarter of a second each would be ten seconds";
}

TEST(LeasedBudgets, WaitForAServiceThatRestartsAndAskItAgain) {
  LeasedWorld world;
  world.begin();
  bool leased = false;
  std::thread waits{[&] { leased = wait_for_more(world.budget, 4 * MiB, 20'000); }};
  world.service.hear<node::LeaseAsk>();
  world.service.hang_up();
  world.service.accept();
  world.service.greet();
  world.service.grant_next();
  waits.join();
  EXPECT_TRUE(leased);
  EXPECT_EQ(world.budget.surplus(), 4 * MiB);
}

TEST(LeasedBudgets, WaitForAServiceThatIsSilentForAMoment) {
  LeasedWorld world;
  world.begin();
  EXPECT_TRUE(world.commit(2 * MiB)) << "the driver decides";
  const auto unanswered = world.service.hear<node::LeaseAsk>();
  world.give_back(2 * MiB);
  bool leased = false;
  std::thread waits{[&] { leased = wait_for_more(world.budget, 4 * MiB, 20'000); }};
  ::usleep(50'000);
  world.service.say(node::LeaseRefusal{.request = unanswered.request});
  world.service.grant_next();
  waits.join();
  EXPECT_TRUE(leased);
  EXPECT_GE(world.budget.surplus(), 4 * MiB);
}

TEST(LeasedBudgets, LetTheDriverDecideOnceIfTheServiceStaysAway) {
  LeasedWorld world;
  world.begin();
  world.service.hang_up();
  ASSERT_TRUE(comes_true([&] { return !world.leases.is_connected(); }));
  const std::uint64_t began = now_ns();
  const std::uint64_t longest = began + 300'000'000;
  EXPECT_TRUE(world.budget.wait_for_more(4 * MiB, began, longest)) << "it is worth another attempt";
  EXPECT_GE(now_ns(), longest);
  EXPECT_FALSE(world.budget.wait_for_more(4 * MiB, began, longest)) << "and only one";
}

TEST(LeasedBudgets, AreLeasedByNoSocketOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a socket away";
  const FakeService service;
  using lease::sockets_that_may_be_trusted;
  EXPECT_EQ(sockets_that_may_be_trusted({service.path()}).size(), 1u);
  EXPECT_EQ(sockets_that_may_be_trusted({"/etc/passwd", "/nowhere"}).size(), 0u);
  ASSERT_EQ(::chown(service.path().c_str(), 65534, 65534), 0);
  // Neither for a third user nor for root.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65533) != 0 || ::setuid(65533) != 0) ::_exit(3);
    ::_exit(sockets_that_may_be_trusted({service.path()}).empty() ? 0 : 4);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sockets_that_may_be_trusted({service.path()}).size(), 0u);
}

TEST(LeasedBudgets, ReportTheirHoldingsToAServiceThatComesBack) {
  LeasedWorld world;
  world.begin();
  ASSERT_TRUE(world.commit(6 * MiB, [&] { world.service.grant_next(); }));
  const std::string path = world.service.path();
  const std::string away = path + ".away";
  ASSERT_EQ(std::rename(path.c_str(), away.c_str()), 0);  // else it comes back at once
  world.service.hang_up();
  ASSERT_TRUE(comes_true([&] { return !world.leases.is_connected(); }));
  EXPECT_TRUE(world.commit(20 * MiB)) << "beyond the lease, while nobody leases";
  ASSERT_EQ(std::rename(away.c_str(), path.c_str()), 0);
  world.service.accept();
  world.service.greet();
  ASSERT_EQ(world.service.held().size(), 1u);
  EXPECT_EQ(world.service.held()[0].bytes, 26 * MiB);
  EXPECT_EQ(world.budget.surplus(), 0u);
  world.give_back(26 * MiB);
  EXPECT_EQ(world.budget.surplus(), 26 * MiB);
}

}  // namespace
}  // namespace cuvmm::test
