// SPDX-License-Identifier: Apache-2.0
// What clients of the service can do, and that they cannot harm each other.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "daemon/service_world.hpp"

namespace cuvmm::test {
namespace {

using namespace node;

TEST_F(NodeService, LeasesFreeMemoryAndNamesTheOtherHolders) {
  start();
  RawClient first = RawClient::at(*this, "first");
  ASSERT_TRUE(first.hear<Accepted>());
  RawClient second = RawClient::at(*this, "second");
  ASSERT_TRUE(second.hear<Accepted>());
  EXPECT_TRUE(first.lease(200 * MiB));
  EXPECT_FALSE(second.lease(100 * MiB));
  EXPECT_EQ(second.refusal().why, RefusalReason::NotAtOnce);
  EXPECT_EQ(second.refusal().free, 56 * MiB);
  ASSERT_EQ(second.refusal().holders.size(), 1u);
  EXPECT_EQ(second.refusal().holders[0].name, "first");
  EXPECT_EQ(second.refusal().holders[0].process, static_cast<std::uint32_t>(::getpid()));
  first.give_back(100 * MiB);
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 100 * MiB; }));
  EXPECT_TRUE(second.lease(100 * MiB));
  EXPECT_EQ(look_at_device(socket()).leased, 200 * MiB);
}

TEST_F(NodeService, ADisconnectedClientsMemoryIsFree) {
  start();
  {
    RawClient gone = RawClient::at(*this, "gone");
    ASSERT_TRUE(gone.lease(200 * MiB));
  }
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(NodeService, AForkedChildDoesNotKeepItsParentsLease) {
  start();
  const pid_t parent = ::fork();
  if (parent == 0) {
    RawClient client = RawClient::at(*this, "parent");
    if (!client.lease(200 * MiB)) ::_exit(1);
    if (::fork() == 0) {  // the child keeps the socket open
      ::sleep(30);
      ::_exit(0);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }))
      << "seen by its pidfd";
}

TEST_F(NodeService, AGuaranteeReclaimsLentMemory) {
  start();
  RawClient lender = RawClient::at(*this, "lender");
  ASSERT_TRUE(lender.lease(240 * MiB));
  lender.say(UseReport{.place = lender.device(), .cache = 120 * MiB});
  RawClient owner = RawClient::at(*this, "owner", 100 * MiB);
  ASSERT_TRUE(owner.hear<PlaceTerms>());
  owner.say(LeaseAsk{77, owner.device(), 100 * MiB, false});
  const auto demand = lender.hear<ReclaimDemand>();
  ASSERT_TRUE(demand);
  EXPECT_EQ(demand->step, ReclaimStep::Cache);
  EXPECT_EQ(demand->bytes, 84 * MiB);
  lender.say(ReclaimAnswer{demand->revision, lender.device(), ReclaimOutcome::Applied, 84 * MiB});
  const auto grant = owner.hear<LeaseGrant>();
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->request, 77u);
}

TEST_F(NodeService, AReclaimIsShownAsOpenUntilItHasEnded) {
  start();
  RawClient lender = RawClient::at(*this, "lender");
  ASSERT_TRUE(lender.lease(240 * MiB));
  RawClient asker = RawClient::at(*this, "asker");
  ASSERT_TRUE(asker.hear<PlaceTerms>());
  asker.say(LeaseAsk{5, asker.device(), 100 * MiB, false});
  const auto demand = lender.hear<ReclaimDemand>();
  ASSERT_TRUE(demand);
  auto shown = look_at_all<MoveState>(socket());
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].is_open, true);
  lender.say(ReclaimAnswer{demand->revision, lender.device(), ReclaimOutcome::Refused, 0});
  EXPECT_TRUE(comes_true([&] {
    shown = look_at_all<MoveState>(socket());
    return shown.at(0).is_open == false;
  }));
  EXPECT_EQ(shown[0].how, ReclaimEnd::Refused);
}

TEST_F(NodeService, AClientThatDoesNotAnswerIsWaitedForUntilItsDeadline) {
  start();
  RawClient silent = RawClient::at(*this, "silent");
  ASSERT_TRUE(silent.lease(240 * MiB));
  silent.say(UseReport{.place = silent.device(), .cache = 240 * MiB});
  RawClient asker = RawClient::at(*this, "asker", 100 * MiB);
  EXPECT_FALSE(asker.lease(100 * MiB, false));
  EXPECT_EQ(asker.refusal().why, RefusalReason::NotReturned);
  EXPECT_TRUE(asker.lease(16 * MiB));
}

TEST_F(NodeService, ACancelledRequestReclaimsNothingMore) {
  start();
  RawClient busy = RawClient::at(*this, "busy");
  ASSERT_TRUE(busy.lease(240 * MiB));
  RawClient asker = RawClient::at(*this, "asker");
  ASSERT_TRUE(asker.hear<PlaceTerms>());
  asker.say(LeaseAsk{5, asker.device(), 100 * MiB, false});
  ASSERT_TRUE(busy.hear<ReclaimDemand>()) << "its turn";
  asker.say(LeaseCancel{5});
  busy.give_back(240 * MiB);
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
  EXPECT_FALSE(asker.hear<LeaseGrant>(200));
}

TEST_F(NodeService, GarbageClosesOnlyItsOwnConnection) {
  start();
  RawClient good = RawClient::at(*this, "good");
  ASSERT_TRUE(good.lease(MiB * 8));
  std::mt19937_64 random{7};
  for (int i = 0; i < 50; ++i) {
    RawClient bad{socket()};
    ASSERT_TRUE(bad.is_open());
    std::vector<std::byte> packet(random() % longest_message + 1);
    for (std::byte& byte : packet) byte = static_cast<std::byte>(random());
    bad.say(packet);
    EXPECT_TRUE(bad.is_ended());
  }
  EXPECT_TRUE(good.lease(MiB * 8));
}

TEST_F(NodeService, PartialAndOutOfOrderMessagesEndTheConnection) {
  start();
  RawClient half{socket()};
  auto packet = encode(Greeting{.name = "half"});
  packet.resize(packet.size() / 2);
  half.say(packet);
  EXPECT_TRUE(half.is_ended());
  RawClient ungreeted{socket()};
  ungreeted.say(LeaseAsk{.request = 1, .bytes = MiB});
  EXPECT_TRUE(ungreeted.is_ended());
  RawClient twice = RawClient::at(*this, "twice");
  twice.say(Greeting{.name = "twice"});
  EXPECT_TRUE(twice.is_ended());
  RawClient usurper = RawClient::at(*this, "usurper");
  usurper.say(LeaseGrant{1});
  EXPECT_TRUE(usurper.is_ended());
}

TEST_F(NodeService, AnotherVersionIsToldWhy) {
  start();
  RawClient newer{socket()};
  newer.say(Greeting{.oldest = 900, .newest = 901, .name = "newer"});
  const auto rejected = newer.hear<Rejected>();
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->why, Rejection::Version);
  EXPECT_EQ(rejected->newest, newest_protocol);
  EXPECT_TRUE(newer.is_ended());
}

TEST_F(NodeService, UnknownMessageKindsAreSkipped) {
  start();
  RawClient client = RawClient::at(*this, "later");
  ASSERT_TRUE(client.hear<Accepted>());
  auto packet = encode(LeaseCancel{1});
  packet[4] = std::byte{200};
  client.say(packet);
  EXPECT_TRUE(client.lease(MiB));
}

TEST_F(NodeService, AFloodEndsItsConnection) {
  start();
  RawClient good = RawClient::at(*this, "good");
  ASSERT_TRUE(good.hear<Accepted>());
  RawClient flood = RawClient::at(*this, "flood");
  auto packet = encode(LeaseCancel{1});
  packet[4] = std::byte{200};      // a kind that is skipped
  packet.resize(longest_message);  // a long one counts as several
  bool ended = false;
  for (int i = 0; i < 400'000 && !ended; ++i) {
    flood.say(packet);
    if (i % 100 == 0) ended = flood.is_ended(0);
  }
  EXPECT_TRUE(ended || flood.is_ended());
  EXPECT_TRUE(good.lease(MiB));
}

TEST_F(NodeService, AClientThatDoesNotReadLosesItsConnection) {
  start();
  RawClient slow = RawClient::at(*this, "slow");
  RawClient good = RawClient::at(*this, "good");
  // The service refuses each request with an answer that the client never reads.
  for (RequestId i = 0; i < 6000; ++i) {
    slow.say(LeaseAsk{i, slow.device(), 500 * MiB, true});
    if (i % 50 == 0) ::usleep(5000);
  }
  EXPECT_TRUE(slow.is_ended());
  EXPECT_TRUE(good.lease(MiB));
}

TEST_F(NodeService, AnObserverSeesAllOfManyClients) {
  start();
  std::vector<RawClient> many;
  for (int i = 0; i < 800; ++i) many.push_back(RawClient::at(*this, "one of many"));
  ASSERT_TRUE(many.back().hear<PlaceTerms>());
  RawClient observer{socket()};
  observer.say(StateAsk{});
  ::usleep(500'000);  // it reads only once the service has said all
  std::size_t seen = 0;
  while (const auto said = observer.hear_observed()) {
    if (std::holds_alternative<StateEnd>(*said)) break;
    seen += std::holds_alternative<ClientState>(*said) ? 1 : 0;
  }
  EXPECT_EQ(seen, many.size());
}

TEST_F(NodeService, WithoutDescriptorsClientsAreRefusedAndServiceContinues) {
  start({}, {"/bin/sh", "-c", "ulimit -n 40; exec \"$@\"", "sh"});
  std::vector<RawClient> many;
  for (int i = 0; i < 60; ++i) many.emplace_back(socket());
  many.clear();
  EXPECT_TRUE(comes_true([&] {
    RawClient later{socket()};
    later.say(Greeting{.name = "later"});
    return later.hear<Accepted>(2000).has_value();
  }));
}

TEST_F(NodeService, ReplacesAStaleSocketAndRefusesALivingOne) {
  start();
  EXPECT_EQ(start_and_wait({}), 1) << "somebody listens there";
  RawClient still = RawClient::at(*this, "still");
  EXPECT_TRUE(still.hear<Accepted>());
  kill_service();
  start();
  RawClient again = RawClient::at(*this, "again");
  EXPECT_TRUE(again.hear<Accepted>());
}

TEST_F(NodeService, BooksAreExactAfterClientsWereKilledAtRandom) {
  start();
  std::mt19937_64 random{11};
  std::vector<RawClient> clients;
  for (int step = 0; step < 300; ++step) {
    if (clients.size() < 6) clients.push_back(RawClient::at(*this, std::to_string(step)));
    RawClient& one = clients[random() % clients.size()];
    switch (random() % 4) {
      case 0:
        one.close();
        std::erase_if(clients, [](const RawClient& client) { return !client.is_open(); });
        break;
      case 1:
        one.give_back(random() % (8 * MiB));
        break;
      default:
        one.lease((random() % 16 + 1) * MiB);
    }
    EXPECT_LE(look_at_device(socket()).leased, memory);
  }
  clients.clear();
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(NodeService, AReconnectingClientReportsItsHoldings) {
  start();
  const PlaceUuid device = device_of(socket());
  kill_service();
  start();
  RawClient client{socket()};
  client.say(Greeting{.name = "back", .places = 1});
  client.say(HeldAlready{.place = device, .bytes = 64 * MiB});
  ASSERT_TRUE(client.hear<Accepted>());
  EXPECT_EQ(look_at_device(socket()).leased, 64 * MiB);
}

TEST_F(NodeService, AnotherUserIsTurnedAwayFromAUsersService) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  start();
  const std::string path = socket();
  ::chmod(path.c_str(), 0666);
  ::chmod(file("").c_str(), 0755);
  service().signal(SIGSTOP);  // the service must not answer before it checks the user
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    RawClient stranger{path};
    // The service runs as root, a different user from this process.
    ::_exit(stranger.is_open() && stranger.is_ended(20'000) ? 0 : 4);
  }
  ::usleep(100'000);
  service().signal(SIGCONT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NodeService, ASystemWideServiceGivesStrangersNoGuarantee) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  start({"--all-users"});
  ::chmod(file("").c_str(), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    RawClient stranger{socket()};
    const PlaceUuid device = device_of(socket());
    stranger.say(Greeting{.name = "stranger", .weight = 9, .priority = 50, .places = 1});
    stranger.say(HeldAlready{.place = device, .guarantee = 100 * MiB});
    const auto accepted = stranger.hear<Accepted>();
    const auto terms = stranger.hear<PlaceTerms>();
    const bool is_right = accepted && terms && accepted->priority == 0 && accepted->weight == 1 &&
                          terms->guarantee == 0;
    stranger.set_device(device);
    ::_exit(is_right && stranger.lease(MiB) ? 0 : 4);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NodeService, AStrangersClaimLeavesHostMemoryToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  write_file("c.toml", "[capacity]\nhost = \"400M\"\nhost_per_user = \"300M\"\n");
  start({"--all-users", "--config", file("c.toml")});
  ::chmod(file("").c_str(), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    RawClient stranger{socket()};
    stranger.say(Greeting{.name = "stranger", .places = 1});
    stranger.say(HeldAlready{.place = {}, .bytes = Size{1} << 63});
    if (!stranger.hear<Accepted>()) ::_exit(4);
    for (const PlaceState& place : look_at_all<PlaceState>(socket())) {
      if (place.kind == PlaceKind::Host) ::_exit(place.leased == 300 * MiB ? 0 : 5);
    }
    ::_exit(6);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NodeService, OneUserCannotTakeAllConnectionsOfASystemWideService) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  constexpr int most = 256;
  start({"--all-users"});
  ::chmod(file("").c_str(), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    std::vector<RawClient> clients;
    for (int i = 0; i <= most; ++i) {
      clients.emplace_back(socket()).say(Greeting{.name = "many"});
      if (clients.back().hear<Accepted>().has_value() != (i < most)) ::_exit(4);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NodeService, ClientsThatConnectWithoutEndHoldUpNeitherOthersNorSIGTERM) {
  start();
  const std::string path = socket();
  std::vector<pid_t> callers;
  for (int i = 0; i < 3; ++i) {
    callers.push_back(::fork());
    if (callers.back() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) RawClient{path};
  }
  for (int i = 0; i < 5; ++i) {
    RawClient good = RawClient::at(*this, "good");
    EXPECT_TRUE(good.lease(MiB));
  }
  service().signal(SIGTERM);
  EXPECT_EQ(service().wait(), 0);
  for (const pid_t caller : callers) {
    ::kill(caller, SIGKILL);
    ::waitpid(caller, nullptr, 0);
  }
}

TEST_F(NodeService, HoweverMuchTheClientsOfOneUserSayOthersAreHeard) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  start({"--all-users"});
  ::chmod(file("").c_str(), 0755);
  RawClient good = RawClient::at(*this, "good");
  ASSERT_TRUE(good.hear<Accepted>());
  std::vector<RawClient> strangers;
  ASSERT_EQ(::seteuid(65534), 0);  // the kernel reports the user at the time of connect()
  for (int i = 0; i < 60; ++i) strangers.push_back(RawClient::at(*this, "stranger"));
  ASSERT_EQ(::seteuid(0), 0);
  for (RawClient& stranger : strangers) ASSERT_TRUE(stranger.hear<Accepted>());

  service().signal(SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(service().pid(), &status, WUNTRACED), service().pid());
  for (RawClient& stranger : strangers) {
    for (RequestId i = 0; i < 60; ++i) {
      stranger.say(LeaseAsk{i, stranger.device(), 64 * KiB, true});  // 225 MiB in all
    }
  }
  good.say(LeaseAsk{1, good.device(), 100 * MiB, true});
  service().signal(SIGCONT);
  EXPECT_TRUE(good.hear<LeaseGrant>()) << "it was heard only after the strangers had said it all";
}

TEST_F(NodeService, AConnectionThatSaysNothingIsClosed) {
  start();
  RawClient client{socket()};
  client.say(Greeting{.name = "a"});
  ASSERT_TRUE(client.hear<Accepted>());
  RawClient silent{socket()};
  EXPECT_TRUE(silent.is_ended());
  EXPECT_FALSE(client.is_ended(100)) << "it has spoken";
}

TEST_F(NodeService, TheServiceMayOpenAsManyDescriptorsAsItsHardLimitAllows) {
  start({}, {"/bin/sh", "-c", "ulimit -S -n 200; ulimit -H -n 400; exec \"$@\"", "sh"});
  rlimit descriptors{};
  ASSERT_EQ(::prlimit(service().pid(), RLIMIT_NOFILE, nullptr, &descriptors), 0);
  EXPECT_EQ(descriptors.rlim_cur, 400u);
}

TEST_F(NodeService, AClientOfAnotherPidNamespaceIsServed) {
  start();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t inner = ::fork();
    if (inner == 0) {
      RawClient client = RawClient::at(*this, "inner");
      ::_exit(client.hear<Accepted>() && client.lease(8 * MiB) ? 0 : 4);
    }
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(NodeService, TermsCanBeChangedWhileAClientRuns) {
  start();
  RawClient client = RawClient::at(*this, "trainer");
  ASSERT_TRUE(client.hear<PlaceTerms>());
  RawClient admin{socket()};
  admin.say(TermsAsk{.name = "trainer", .sets_limit = true, .limit = 64 * MiB});
  const auto answer = admin.hear<ObserverAnswer>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->changed, 1u);
  const auto terms = client.hear<PlaceTerms>();
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->limit, 64 * MiB);
  EXPECT_FALSE(client.lease(80 * MiB));
  EXPECT_EQ(client.refusal().why, RefusalReason::BeyondLimit);
  admin.say(TermsAsk{.name = "nobody", .sets_limit = true});
  EXPECT_EQ(admin.hear<ObserverAnswer>()->why_not, "there is no client of that name");
  admin.say(TermsAsk{.name = "trainer",
                     .sets_guarantee = true,
                     .guarantee = GiB,
                     .sets_limit = true,
                     .limit = unlimited});
  EXPECT_NE(admin.hear<ObserverAnswer>()->why_not, "");
}

TEST_F(NodeService, TermsSetByHandOutliveTheConnectionButNotTheName) {
  start();
  RawClient admin{socket()};
  {
    RawClient client = RawClient::at(*this, "trainer");
    ASSERT_TRUE(client.hear<PlaceTerms>());
    admin.say(TermsAsk{.name = "trainer", .sets_limit = true, .limit = 64 * MiB});
    ASSERT_EQ(admin.hear<ObserverAnswer>()->why_not, "");
  }
  RawClient back = RawClient::at(*this, "trainer");
  EXPECT_EQ(back.hear<PlaceTerms>()->limit, 64 * MiB);
  RawClient other = RawClient::at(*this, "other");
  EXPECT_EQ(other.hear<PlaceTerms>()->limit, unlimited);
}

TEST_F(NodeService, TermsThatOneOfSeveralClientsCannotGetChangeForNone) {
  start();
  RawClient first = RawClient::at(*this, "rank");
  ASSERT_TRUE(first.hear<PlaceTerms>());
  RawClient second = RawClient::at(*this, "rank", 100 * MiB);
  ASSERT_TRUE(second.hear<PlaceTerms>());
  RawClient admin{socket()};
  admin.say(TermsAsk{.name = "rank", .sets_limit = true, .limit = 64 * MiB});
  EXPECT_EQ(admin.hear<ObserverAnswer>()->why_not,
            "the limit of 64.0 MiB is below the guarantee of 100 MiB");
  admin.say(TermsAsk{.name = "rank", .sets_guarantee = true, .guarantee = 200 * MiB});
  EXPECT_EQ(admin.hear<ObserverAnswer>()->why_not,
            "guarantees would add up to 400 MiB; there is 256 MiB");
  for (const HoldingState& held : look_at_all<HoldingState>(socket())) {
    EXPECT_EQ(held.limit, unlimited);
    EXPECT_NE(held.guarantee, 200 * MiB);
  }
  admin.say(TermsAsk{.name = "rank", .sets_guarantee = true, .guarantee = 128 * MiB});
  EXPECT_EQ(admin.hear<ObserverAnswer>()->changed, 2u);
}

TEST_F(NodeService, ARefusedSetChangesTheCapNeither) {
  start();
  RawClient client = RawClient::at(*this, "rank", 100 * MiB);
  ASSERT_TRUE(client.hear<PlaceTerms>());
  const std::string cuvmm = CUVMM_BIN "/cuvmm";
  RunningProgram set{
      {cuvmm, "set", "rank", "--cap", "30", "--limit", "64M"}, required(), file("set")};
  EXPECT_EQ(set.wait(), 1);
  EXPECT_EQ(read_file("set"),
            "cuvmm: rank: the limit of 64.0 MiB is below the guarantee of 100 MiB\n")
      << "it would also say how many clients have the new cap";
}

TEST_F(NodeService, ASetThatReachesNoServiceNamesTheSocketAndTheReason) {
  const std::string path = file("nobody.sock");
  const std::string cuvmm = CUVMM_BIN "/cuvmm";
  RunningProgram set{
      {cuvmm, "set", "a", "--weight", "2"}, {"VMM_NODE_SOCKET=" + path}, file("set")};
  EXPECT_EQ(set.wait(), 1);
  const std::string said = read_file("set");
  EXPECT_NE(said.find(path + ", No such file or directory"), std::string::npos) << said;
}

TEST_F(NodeService, TermsThatContradictEachOtherAreRefused) {
  start();
  RawClient client = RawClient::at(*this, "trainer");
  ASSERT_TRUE(client.hear<PlaceTerms>());
  RawClient admin{socket()};
  const auto answer_to = [&](const TermsAsk& ask) {
    admin.say(ask);
    return admin.hear<ObserverAnswer>()->why_not;
  };
  EXPECT_EQ(answer_to({.name = "trainer", .sets_guarantee = true, .guarantee = 32 * MiB}), "");
  EXPECT_EQ(answer_to({.name = "trainer", .sets_limit = true, .limit = 16 * MiB}),
            "the limit of 16.0 MiB is below the guarantee of 32.0 MiB");
  EXPECT_EQ(answer_to({.name = "trainer", .sets_limit = true, .limit = 48 * MiB}), "");
  EXPECT_EQ(answer_to({.name = "trainer", .sets_guarantee = true, .guarantee = 64 * MiB}),
            "the guarantee of 64.0 MiB exceeds the limit of 48.0 MiB");
  EXPECT_EQ(answer_to({.name = "trainer",
                       .sets_guarantee = true,
                       .guarantee = 8 * MiB,
                       .sets_limit = true,
                       .limit = 16 * MiB}),
            "");
}

}  // namespace
}  // namespace cuvmm::test
